"""What a plan is made of, in words: its operators, their state, and how exact the result is."""

from streamrt.sql.binding.group_plans import Aggregate, Distinct, SessionAggregate, Top, WindowAggregate
from streamrt.sql.binding.join_plans import AsOfJoin, IntervalJoin, Join, SetOperation, Union
from streamrt.sql.binding.over_plans import OverStream, OverTable
from streamrt.sql.binding.row_plans import Plan, Scan, walk_plan
from streamrt.windows.running import make_running

__all__ = ["explain_plan", "find_warnings"]


def explain_plan(title: str, plan: Plan) -> str:
    """Return lines that explain a plan.

    Args:
        title: name of the view or query.
        plan: the plan.
    """
    kind = "append-only: rows are only added" if plan.appends else "updating: rows change"
    keys = [", ".join(sorted(key)) for key in plan.keys if key]
    one = frozenset() in plan.keys
    lines = [f"{title}: {kind}{f'; key {keys[0]}' if keys else '; one row' if one else ''}"]
    lines += [f"  {each}" for each in _tree(plan, 0)]
    states = [text for text in map(_state_of, walk_plan(plan)) if text is not None]
    lines.append("state: " + ("; ".join(states) if states else "none"))
    lines.append(f"exactness: {_exactness(plan)}")
    lines += [f"warning: {text}" for text in find_warnings(plan)]
    return "\n".join(lines)


def find_warnings(plan: Plan) -> list[str]:
    """Return what of a plan costs more than its text shows.

    Args:
        plan: the plan.
    """
    texts = (
        f"the {each.describe()} has no equality of columns, so all rows of both sides meet in one partition, and each row "
        "that changes is compared with all rows of the other side: add an equality, a.column = b.column, to spread them"
        for each in walk_plan(plan)
        if isinstance(each, Join) and each.compares_all
    )
    return list(dict.fromkeys(texts))


def _tree(plan: Plan, depth: int) -> list[str]:
    line = f"{'  ' * depth}{plan.describe()}"
    if isinstance(plan, Scan):
        line += f"  {'append-only' if plan.appends else 'updating'}: {', '.join(map(str, plan.fields))}"
    return [line, *(text for part in plan.inputs() for text in _tree(part, depth + 1))]


def _state_of(plan: Plan) -> str | None:
    match plan:
        case Scan() if not plan.appends and plan.kind == "table":
            return f"the rows of {plan.name}"
        case Aggregate() if not plan.group:
            return "one entry"
        case Aggregate():
            more = "" if plan.input.appends else ", and values of min, max and the like"
            return f"an entry for each {', '.join(plan.group)}{more}, for ever"
        case WindowAggregate() | SessionAggregate():
            return "an entry for each group and window that is open"
        case Distinct():
            return "an entry for each distinct row"
        case Join() if plan.compares_all:
            return "all rows of both sides of the join, in one partition"
        case Join():
            return "the rows of both sides of the join"
        case AsOfJoin():
            return "former rows of the table, as long as it keeps them"
        case IntervalJoin():
            return f"rows of both sides for {plan.before_ms + plan.after_ms + plan.grace_ms} ms"
        case Top():
            return f"{plan.count} rows of each group" if plan.input.appends else "the rows of each group, in order"
        case OverTable():
            return f"all rows of each group, in order{', for ever' if plan.input.appends else ''}"
        case OverStream():
            return _describe_frames(plan)
        case SetOperation() | Union() if not plan.appends:
            return "a count of each row" if isinstance(plan, SetOperation) else None
    return None


def _describe_frames(plan: OverStream) -> str:
    """Return what an OVER keeps of a stream."""
    of = f"each {', '.join(plan.group)}" if plan.group else "all rows"
    columns = [call.column() for call in plan.calls]
    parts = [f"an entry for {of}, for ever"] if any(make_running(each) for each in columns) else []
    framed = {str(each.frame): None for each in columns if make_running(each) is None}
    parts += [f"{frame} of {of}" for frame in framed]
    return f"rows that wait for {plan.grace_ms} ms and the time of others, {', '.join(parts)}"


def _exactness(plan: Plan) -> str:
    late = [
        each
        for each in walk_plan(plan)
        if isinstance(each, WindowAggregate | SessionAggregate | AsOfJoin | IntervalJoin | OverStream)
    ]
    if late:
        return "E*: the rows of the batch query, but for records that come too late, which are counted"
    return "E: the rows of the batch query over the same records"
