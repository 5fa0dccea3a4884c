"""Aggregates of the rows before each row of a stream: `sum(a) OVER (PARTITION BY b ORDER BY at ROWS ...)`."""

from sqlglot import exp

from streamrt.sql.binding.group_plans import Call, OverRows
from streamrt.sql.binding.intervals import time_column
from streamrt.sql.binding.keys import as_key
from streamrt.sql.binding.scopes import reference
from streamrt.sql.binding.stages import Stage
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.nodes import ColumnReference

__all__ = ["add_over"]

_FORM = "write ORDER BY at ROWS BETWEEN 9 PRECEDING AND CURRENT ROW"


def add_over(stage: Stage, window: exp.Window) -> ColumnReference:
    """Add the aggregate of an OVER to each row, and return its column.

    Args:
        stage: the query so far.
        window: the OVER.
    """
    function = window.this
    name = function.sql_name().lower() if isinstance(function, exp.Func) else "this"
    if not isinstance(function, exp.AggFunc | exp.Filter) or isinstance(
        function, exp.Lag | exp.Lead | exp.FirstValue | exp.LastValue | exp.NthValue
    ):
        raise make_refusal(
            f"{name}() OVER is refused: OVER takes row_number, rank and dense_rank with a bound such as <= 10, and "
            "aggregates of the rows before each row",
            window,
        )
    order, spec = window.args.get("order"), window.args.get("spec")
    if order is None or spec is None:
        raise make_refusal(
            f"{name}() OVER without a bounded frame changes former rows again and again: {_FORM}, or join with a query that "
            "has GROUP BY",
            window,
        )
    if not stage.plan.appends:
        raise make_refusal(
            "OVER with a frame needs the rows of a stream, and these are of a table, whose rows change", window
        )
    time = stage.bind(order.expressions[0].this)
    if (
        len(order.expressions) != 1
        or order.expressions[0].args.get("desc")
        or not isinstance(time, ColumnReference)
        or time.name != time_column(stage.plan)
    ):
        raise make_refusal("OVER with a frame is ordered by the time column of the stream, ascending", order)
    rows = _read_frame(spec, window)
    group = [as_key(stage.bind(each), each) for each in window.args.get("partition_by") or []]
    call = stage.session.bind_aggregate(function, stage.scope)
    names = stage.add([*group, *call.arguments])
    column = stage.session.new_name()
    over = OverRows(
        stage.plan,
        tuple(names[: len(group)]),
        time.name,
        rows,
        (Call(column, call, tuple(names[len(group) :]), str(call)),),
        stage.session.emit.grace_ms or 0,
    )
    stage.plan = over
    return reference(over.field(column))


def _read_frame(spec: exp.Expr, window: exp.Window) -> int:
    """Return the number of rows of a frame, with the row itself."""
    start, end = spec.args.get("start"), spec.args.get("end")
    side = (spec.args.get("start_side") or "").upper()
    if end not in (None, "CURRENT ROW") or side != "PRECEDING" or not isinstance(start, exp.Expr):
        raise make_refusal(f"this frame is not there: {_FORM}", window)
    if (spec.args.get("kind") or "").upper() == "ROWS":
        if not isinstance(start, exp.Literal) or not start.name.isdigit():
            raise make_analysis_error("ROWS needs a number", start)
        return int(start.name) + 1
    raise make_refusal(
        f"a frame of RANGE also has later rows of the same time, so former rows would change: {_FORM}", window
    )
