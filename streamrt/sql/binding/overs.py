"""Functions of the rows around each row: `sum(a) OVER (PARTITION BY b ORDER BY at ROWS ...)`.

Over a stream in the order of its time, functions of the rows before are those of a stream again. Other ones change former
rows, so the result is updating.
"""

from dataclasses import replace

from sqlglot import exp

from streamrt.sql.binding.group_plans import Call
from streamrt.sql.binding.keys import as_key
from streamrt.sql.binding.over_frames import read_frame
from streamrt.sql.binding.over_plans import FramedCall, OverStream, OverTable
from streamrt.sql.binding.over_streams import as_stream
from streamrt.sql.binding.ranking import bind_order
from streamrt.sql.binding.row_plans import Project
from streamrt.sql.binding.scopes import reference, references_of
from streamrt.sql.binding.stages import Stage, with_columns
from streamrt.sql.expressions import AggregateCall, TypedExpression
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.nodes import ColumnReference
from streamrt.sql.expressions.places import PlaceCall, bind_place
from streamrt.windows.frames import ALL_ROWS, UP_TO_PEERS, Frame

__all__ = ["add_over"]


def add_over(stage: Stage, window: exp.Window) -> ColumnReference:
    """Add the result of an OVER to each row, and return its column.

    Args:
        stage: the query so far.
        window: the OVER.
    """
    call = _bind_function(stage, window.this, window)
    order, spec = window.args.get("order"), window.args.get("spec")
    ordered = [] if order is None else order.expressions
    if isinstance(call, PlaceCall):
        if not ordered:
            raise make_analysis_error(f"{call} needs OVER (... ORDER BY ...)", window)
        if spec is not None and not call.framed:
            raise make_analysis_error(f"{call} has no frame: leave out ROWS and RANGE", window)
    group = [as_key(stage.bind(each), each) for each in window.args.get("partition_by") or []]
    by, descending = bind_order(stage, ordered) if ordered else ([], ())
    frame = UP_TO_PEERS if by else ALL_ROWS
    if spec is not None:
        frame = read_frame(spec, stage, by)
    if isinstance(call, PlaceCall) and not call.framed:
        frame = ALL_ROWS
    return _add_call(stage, group, by, descending, call, frame)


def _bind_function(stage: Stage, function: exp.Expr, window: exp.Window) -> AggregateCall | PlaceCall:
    place = bind_place(function, stage.bind)
    if place is not None:
        return place
    if isinstance(function, exp.IgnoreNulls | exp.RespectNulls):
        raise make_refusal("IGNORE NULLS is for first_value, last_value and nth_value", window)
    return stage.session.bind_aggregate(function, stage.scope)


def _add_call(
    stage: Stage,
    group: list[TypedExpression],
    by: list[TypedExpression],
    descending: tuple[bool, ...],
    call: AggregateCall | PlaceCall,
    frame: Frame,
) -> ColumnReference:
    """Add a function. Those of one group and order share the rows that they keep."""
    former = stage.plan.as_table() if isinstance(stage.plan, OverStream) else stage.plan
    column = stage.session.new_name()
    if isinstance(former, OverTable) and _has_order(former, [*group, *by], descending, call.arguments):
        plan, names = with_columns(former.input, call.arguments, stage.session)
        over = replace(former, input=plan)
    else:
        plan, names = with_columns(stage.plan, [*group, *by, *call.arguments], stage.session)
        first, behind = len(group), len(group) + len(by)
        over = OverTable(plan, tuple(names[:first]), tuple(names[first:behind]), descending, ())
        names = names[behind:]
    made = FramedCall(Call(column, call, tuple(names), str(call)), frame)
    over = replace(over, calls=(*over.calls, made))
    stage.plan = as_stream(over, stage.session.emit.grace_ms or 0)
    return reference(over.field(column))


def _has_order(
    plan: OverTable,
    wanted: list[TypedExpression],
    descending: tuple[bool, ...],
    arguments: tuple[TypedExpression, ...],
) -> bool:
    """Return whether an OVER has some groups and order, and its input the columns of further arguments."""
    rows = plan.input
    made = dict(rows.columns) if isinstance(rows, Project) else {}
    columns = [made.get(name, reference(rows.field(name))) for name in (*plan.group, *plan.by)]
    known = {field.name for field in rows.fields}
    return (
        columns == wanted
        and plan.descending == descending
        and all(each.name in known for argument in arguments for each in references_of(argument))
    )
