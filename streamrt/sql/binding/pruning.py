"""Plans without columns that nothing reads, so that state and internal topics are small."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from streamrt.operators.expression import Expression
from streamrt.sql.binding.expanding import RowsOfFunction
from streamrt.sql.binding.group_plans import Aggregate, Distinct, SessionAggregate, Top, WindowAggregate
from streamrt.sql.binding.grouping_sets import RowsOfSets
from streamrt.sql.binding.join_plans import AsOfJoin, IntervalJoin, Join, SetOperation, Union
from streamrt.sql.binding.over_plans import OverStream, OverTable
from streamrt.sql.binding.row_plans import Expand, Filter, Plan, Project, Scan
from streamrt.sql.binding.scopes import reference, references_of

__all__ = ["prune_plan"]


def prune_plan(plan: Plan, kept: Collection[int] = ()) -> Plan:
    """Return a plan with the same rows, in which relations have the columns that are read.

    Args:
        plan: the plan.
        kept: identities of plans that stay as they are, such as those of views, which others use as well.
    """
    counts: Counter[int] = Counter()
    _count(plan, counts)
    shared = {number for number, count in counts.items() if count > 1}
    pruning = _Pruning(set(kept) - {id(plan)}, shared)
    return pruning.prune(plan, {field.name for field in plan.fields})


def _count(plan: Plan, counts: Counter[int]) -> None:
    counts[id(plan)] += 1
    if counts[id(plan)] == 1:
        for part in plan.inputs():
            _count(part, counts)


class _Pruning:
    def __init__(self, kept: set[int], shared: set[int]) -> None:
        self._kept = kept
        self._shared = shared
        # A relation that is used several times stays one relation, with all of its columns.
        self._done: dict[int, tuple[Plan, Plan]] = {}

    def prune(self, plan: Plan, needed: set[str]) -> Plan:
        if isinstance(plan, Scan) or id(plan) in self._kept:
            return plan
        if id(plan) not in self._shared:
            return self._prune(plan, needed)
        if id(plan) not in self._done:
            self._done[id(plan)] = plan, self._prune(plan, {field.name for field in plan.fields})
        return self._done[id(plan)][1]

    def _prune(self, plan: Plan, needed: set[str]) -> Plan:
        match plan:
            case Project():
                columns = tuple(column for column in plan.columns if column[0] in needed) or plan.columns[:1]
                return replace(plan, input=self.prune(plan.input, _read(each for _, each in columns)), columns=columns)
            case Filter():
                return replace(plan, input=self.prune(plan.input, needed | _read([plan.condition])))
            case Expand():
                return self._expand(plan, needed)
            case Aggregate():
                calls = tuple(call for call in plan.calls if call.name in needed)
                read = {*plan.group, *(name for call in calls for name in call.arguments)}
                return replace(plan, input=self.prune(plan.input, read), calls=calls)
            case WindowAggregate() | SessionAggregate():
                calls = tuple(call for call in plan.calls if call.name in needed)
                read = {plan.time, *plan.group, *(name for call in calls for name in call.arguments)}
                return replace(plan, input=self.prune(plan.input, read), calls=calls)
            case OverStream() | OverTable():
                order = (plan.time,) if isinstance(plan, OverStream) else plan.by
                return replace(plan, input=self._only(plan.input, needed | {*plan.group, *order, *plan.arguments}))
            case Top():
                return replace(plan, input=self._only(plan.input, needed | {*plan.group, *plan.by}))
            case Join():
                read = set() if plan.condition is None else _read([plan.condition])
                return replace(plan, **self._sides(plan, needed | read))
            case AsOfJoin():
                return replace(plan, **self._sides(plan, needed | {plan.time}))
            case IntervalJoin():
                return replace(plan, **self._sides(plan, needed | {plan.left_time, plan.right_time}))
            case Union():
                return replace(plan, parts=tuple(self._only(part, needed) for part in plan.parts))
            case Distinct():
                return replace(plan, input=self.prune(plan.input, {field.name for field in plan.fields}))
            case SetOperation():
                left, right = (
                    self.prune(side, {field.name for field in side.fields}) for side in (plan.left, plan.right)
                )
                return replace(plan, left=left, right=right)
        return plan

    def _expand(self, plan: Expand, needed: set[str]) -> Plan:
        added = {field.name for field in plan.columns}
        rows_of = plan.rows_of
        read = set(rows_of.arguments) if isinstance(rows_of, RowsOfFunction | RowsOfSets) else {str(rows_of.column)}
        return replace(plan, input=self.prune(plan.input, (needed - added) | read))

    def _sides(self, plan: Join | AsOfJoin | IntervalJoin, needed: set[str]) -> dict[str, Any]:
        return {
            "left": self._only(plan.left, needed | set(plan.left_on)),
            "right": self._only(plan.right, needed | set(plan.right_on)),
        }

    def _only(self, plan: Plan, needed: set[str]) -> Plan:
        """Return a relation whose rows are kept, with no other columns."""
        own = [field.name for field in plan.fields if field.name in needed] or [plan.fields[0].name]
        pruned = self.prune(plan, set(own))
        if [field.name for field in pruned.fields] == own:
            return pruned
        return Project(pruned, tuple((name, reference(pruned.field(name))) for name in own))


def _read(expressions: Iterable[Expression]) -> set[str]:
    """Return the columns that expressions read."""
    return {column.name for expression in expressions for column in references_of(expression)}
