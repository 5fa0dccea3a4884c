"""Frames of OVER: `ROWS BETWEEN 9 PRECEDING AND CURRENT ROW`, and RANGE."""

import datetime
from typing import Any

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.binding.stages import Stage
from streamrt.sql.binding.windows import read_duration
from streamrt.sql.expressions import Constant, TypedExpression, describe_type
from streamrt.sql.expressions.casts import cast_to
from streamrt.sql.expressions.coercion import is_numeric
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.logic import IsNull
from streamrt.windows.frames import Frame

__all__ = ["read_frame"]


def read_frame(spec: exp.Expr, stage: Stage, by: list[TypedExpression]) -> Frame:
    """Return the frame of an OVER.

    Args:
        spec: the frame.
        stage: the query so far.
        by: what orders rows.

    Raises:
        SQLError: if it is refused, or does not fit the order.
    """
    kind = str(spec.args.get("kind") or "").upper()
    if kind not in ("ROWS", "RANGE"):
        raise make_refusal(f"{kind} frames are refused: write ROWS or RANGE", spec)
    if spec.args.get("exclude"):
        raise make_refusal("EXCLUDE is refused: write two OVERs, one of the rows before and one of those behind", spec)
    if not by:
        raise make_analysis_error(f"a frame of {kind} needs ORDER BY", spec)
    start = _read_bound(spec.args.get("start"), spec.args.get("start_side"), kind, stage, by, spec)
    end = _read_bound(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"), kind, stage, by, spec)
    frame = Frame("rows" if kind == "ROWS" else "range", start, end)
    sides = str(spec.args.get("start_side") or "").upper(), str(spec.args.get("end_side") or "").upper()
    if frame.is_reversed or (start is None and sides[0] == "FOLLOWING") or (end is None and sides[1] == "PRECEDING"):
        raise make_analysis_error("this frame ends before it starts", spec)
    return frame


def _read_bound(bound: Any, side: Any, kind: str, stage: Stage, by: list[TypedExpression], spec: exp.Expr) -> Any:
    """Return a distance: below 0 before the row, None without a bound."""
    if not isinstance(bound, exp.Expr):
        return 0 if str(bound).upper() == "CURRENT ROW" else None
    distance = _read_rows(bound, stage) if kind == "ROWS" else _read_range(bound, stage, by, spec)
    return -distance if str(side).upper() == "PRECEDING" else distance


def _read_rows(bound: exp.Expr, stage: Stage) -> int:
    value = None if isinstance(bound, exp.Interval) else stage.bind(bound)
    if not isinstance(value, Constant) or type(value.value) is not int or value.value < 0:
        raise make_analysis_error("ROWS needs a number of rows, such as 9 PRECEDING", bound)
    return value.value


def _read_range(bound: exp.Expr, stage: Stage, by: list[TypedExpression], spec: exp.Expr) -> Any:
    # NULLS FIRST adds a column to the order.
    if len([each for each in by if not isinstance(each, IsNull)]) != 1:
        raise make_analysis_error("RANGE with a distance needs ORDER BY of one column", spec)
    ordered = by[-1]
    if pa.types.is_timestamp(ordered.dtype) or pa.types.is_date(ordered.dtype):
        if not isinstance(bound, exp.Interval):
            raise make_analysis_error(f"RANGE of {ordered} needs an INTERVAL, such as INTERVAL '1' HOUR", bound)
        return datetime.timedelta(milliseconds=read_duration(bound))
    if not is_numeric(ordered.dtype):
        raise make_refusal(
            f"RANGE with a distance needs a number, a date or a time, and {ordered} is {describe_type(ordered.dtype)}",
            bound,
        )
    value = None if isinstance(bound, exp.Interval) else stage.bind(bound)
    if not isinstance(value, Constant) or value.value is None or not is_numeric(value.dtype):
        raise make_analysis_error(f"RANGE of {ordered} needs a number, such as 5 PRECEDING", bound)
    if pa.types.is_floating(ordered.dtype):
        value = cast_to(value, pa.float64())
    elif pa.types.is_floating(value.dtype):
        raise make_analysis_error(f"RANGE of {ordered} needs an exact number, such as 5 PRECEDING", bound)
    distance = value.compile()({}, None, 0, None)
    if distance < 0:
        raise make_analysis_error("RANGE needs a distance that is not below 0", bound)
    return distance
