"""Windows of time: `window(at, '1 hour')`, `session_window(at, '5 minutes')`, TUMBLE and HOP."""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.binding.row_plans import Expand, Field, Project
from streamrt.sql.binding.scopes import reference
from streamrt.sql.binding.stages import Stage
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.calls import FunctionCall
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.logic import IsNull

__all__ = [
    "WindowFunction",
    "Windowing",
    "WindowsOf",
    "add_window_columns",
    "is_window_call",
    "read_duration",
    "read_window_call",
    "read_window_function",
]

_UNITS = {
    "microsecond": 0.001,
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_US = datetime.timedelta(microseconds=1)


class TypedTime(Protocol):
    """A time that windows are of: an expression of a view, or of a query."""

    @property
    def dtype(self) -> pa.DataType:
        """Its type."""


Time = TypeVar("Time", bound=TypedTime)


@dataclass(frozen=True)
class Windowing(Generic[Time]):
    """Which windows a time is in.

    Attributes:
        kind: windows of one length, windows that grow to this length, or sessions.
        time: the time.
        size_ms: length of windows, or the gap between sessions, in milliseconds.
        step_ms: from the start of a window to that of the next one; of those that grow, by how much.
        offset_ms: how much later than the epoch a window starts.
    """

    kind: Literal["fixed", "cumulate", "session"]
    time: Time
    size_ms: int
    step_ms: int
    offset_ms: int = 0

    def describe(self) -> str:
        """Return the windows in a few words."""
        step = "" if self.step_ms == self.size_ms else f" each {self.step_ms} ms"
        offset = f" from {self.offset_ms} ms" if self.offset_ms else ""
        growing = "growing " if self.kind == "cumulate" else ""
        return f"{growing}windows of {self.size_ms} ms{step}{offset} of {self.time}"


def bound_of_window(size_us: int, offset_us: int, shift_us: int, time: datetime.datetime) -> datetime.datetime:
    """Return the start of the window of a time, moved by microseconds.

    Args:
        size_us: length of windows in microseconds.
        offset_us: how much later than the epoch a window starts.
        shift_us: what is added to the start.
        time: the time.

    Example:
        >>> bound_of_window(3_600_000_000, 0, 0, datetime.datetime(2026, 1, 2, 3, 40))
        datetime.datetime(2026, 1, 2, 3, 0)
    """
    epoch = _EPOCH if time.tzinfo is None else _EPOCH_UTC
    since = (time - epoch) // _US - offset_us
    return epoch + datetime.timedelta(microseconds=since - since % size_us + offset_us + shift_us)


def shift_time(shift_us: int, time: datetime.datetime) -> datetime.datetime:
    """Return a time, moved by microseconds."""
    return time + datetime.timedelta(microseconds=shift_us)


@dataclass(frozen=True)
class WindowsOf:
    """Makes the start and the end of each window that a row is in, the last one first.

    Attributes:
        column: the column with the time.
        start: the column for the start.
        end: the column for the end.
        size_us: length of windows in microseconds.
        step_us: from the start of a window to that of the next one.
        offset_us: how much later than the epoch a window starts.
    """

    column: str
    start: str
    end: str
    size_us: int
    step_us: int
    offset_us: int

    def __call__(self, row: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the columns for each window."""
        time = row[self.column]
        if time is None:
            return
        epoch = _EPOCH if time.tzinfo is None else _EPOCH_UTC
        since = (time - epoch) // _US - self.offset_us
        start = since - since % self.step_us
        while start > since - self.size_us:
            begin = epoch + datetime.timedelta(microseconds=start + self.offset_us)
            yield {self.start: begin, self.end: begin + datetime.timedelta(microseconds=self.size_us)}
            start -= self.step_us


@dataclass(frozen=True)
class GrowingWindowsOf(WindowsOf):
    """Makes the start and the end of each window that a row is in, of windows that grow from the same start.

    Example:
        >>> windows = GrowingWindowsOf("at", "start", "end", 3_000_000, 1_000_000, 0)
        >>> [row["end"].second for row in windows({"at": datetime.datetime(2026, 1, 1, 0, 0, 1)})]
        [2, 3]
    """

    def __call__(self, row: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the columns for each window."""
        time = row[self.column]
        if time is None:
            return
        start = bound_of_window(self.size_us, self.offset_us, 0, time)
        for length in range(self.step_us, self.size_us + 1, self.step_us):
            end = start + datetime.timedelta(microseconds=length)
            if end > time:
                yield {self.start: start, self.end: end}


def is_window_call(node: exp.Expr) -> bool:
    """Return whether a node of GROUP BY is `window(...)` or `session_window(...)`."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in ("window", "session_window")


def read_window_call(name: str, time: Time, durations: Sequence[exp.Expr], call: exp.Expr) -> Windowing[Time]:
    """Return the windows of a call.

    Args:
        name: name of the function.
        time: its first argument.
        durations: the arguments behind it.
        call: the call, for errors.
    """
    if not pa.types.is_timestamp(time.dtype):
        raise make_analysis_error(
            f"{name}() needs a column of type TIMESTAMP, and this is of another one: cast it", call
        )
    lengths = [read_duration(each) for each in durations]
    if name == "session_window":
        if len(lengths) != 1:
            raise make_analysis_error("session_window(at, '5 minutes') has a time and a gap", call)
        return Windowing("session", time, lengths[0], lengths[0])
    most = {"window": 3, "tumble": 2, "hop": 3, "cumulate": 3}[name]
    if not 1 <= len(lengths) <= most:
        raise make_analysis_error(f"{name}() has {len(lengths)} durations, and takes 1 to {most}", call)
    if name in ("hop", "cumulate"):
        if len(lengths) < 2:
            word = "slide" if name == "hop" else "step"
            raise make_analysis_error(
                f"{name.upper()}(TABLE bids, DESCRIPTOR(at), {word}, size) has two durations", call
            )
        step, size = lengths[:2]
    elif name == "tumble":
        size = step = lengths[0]
    else:
        size = lengths[0]
        step = lengths[1] if len(lengths) > 1 else size
    offset = lengths[2] if len(lengths) > 2 else lengths[1] if name == "tumble" and len(lengths) > 1 else 0
    if size <= 0 or step <= 0 or step > size:
        raise make_analysis_error("windows have a length above 0, and start at least once in each length", call)
    if size // step > 1000:
        raise make_refusal(f"each row would be in {size // step:,} windows: at most 1,000", call)
    if name == "cumulate":
        if size % step:
            raise make_analysis_error("the size of windows of CUMULATE is a multiple of the step", call)
        return Windowing("cumulate", time, size, step, offset % size)
    return Windowing("fixed", time, size, step, offset % step)


@dataclass(frozen=True)
class WindowFunction:
    """A function of windows in FROM, such as `TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECONDS)`.

    Attributes:
        name: its name in lower case.
        source: the table or query that it is of.
        time: the column of the time.
        durations: the durations.
        call: the call.
    """

    name: str
    source: exp.Expr
    time: exp.Column
    durations: list[exp.Expr]
    call: exp.Expr


def read_window_function(call: exp.Expr) -> WindowFunction:
    """Return the function of windows that a call in FROM is.

    Args:
        call: the call.

    Raises:
        SQLNotSupportedError: if it is another function, or has other arguments.
    """
    if isinstance(call, exp.Anonymous) and call.name.lower() == "table" and len(call.expressions) == 1:
        call = call.expressions[0]
    is_named = isinstance(call, exp.Func) and not isinstance(call, exp.Anonymous)
    name = (call.sql_name() if is_named else call.name).lower()  # type: ignore[attr-defined]
    if name == "session":
        raise make_refusal("SESSION in FROM is refused: write GROUP BY session_window(at, '5 minutes')", call)
    if name not in ("tumble", "hop", "cumulate"):
        raise make_refusal(
            f"{name}() cannot stand in FROM: TUMBLE, HOP and CUMULATE can, and LATERAL VIEW explode(...) for lists; other "
            "functions that make rows are registered by app.register_function and stand behind LATERAL VIEW",
            call,
        )
    arguments = [each.expression if isinstance(each, exp.Kwarg) else each for each in call.expressions]
    if len(arguments) < 3 or not isinstance(arguments[0], exp.Column | exp.Subquery):
        raise make_refusal(
            f"{name.upper()} has the form {name.upper()}(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECONDS)", call
        )
    source, descriptor = arguments[:2]
    if isinstance(source, exp.Column):
        source = exp.Table(**dict(zip(("this", "db", "catalog"), reversed(source.parts), strict=False)))
    times = list(descriptor.find_all(exp.Column))
    if not (isinstance(descriptor, exp.Anonymous) and descriptor.name.lower() == "descriptor" and len(times) == 1):
        raise make_refusal(
            f"the second argument of {name.upper()} is DESCRIPTOR(at), with the column of the time", descriptor
        )
    return WindowFunction(name, source, times[0], arguments[2:], call)


def read_duration(node: exp.Expr) -> int:
    """Return a duration in milliseconds: of `'1 hour'`, or of `INTERVAL '10' SECONDS`."""
    if isinstance(node, exp.Interval):
        text = f"{node.this.name if node.this is not None else ''} {node.unit.name if node.unit is not None else ''}"
    elif isinstance(node, exp.Literal) and node.is_string:
        text = node.name
    else:
        raise make_analysis_error("a duration is a text such as '1 hour', or INTERVAL '10' SECONDS", node)
    words = text.lower().removeprefix("interval").split()
    total = 0.0
    try:
        for number, unit in zip(words[::2], words[1::2], strict=True):
            total += float(number) * _UNITS[unit.rstrip("s")]
    except (ValueError, KeyError):
        raise make_analysis_error(
            f"{text.strip()!r} is not a duration: write a number and one of {', '.join(_UNITS)}; months and years differ in "
            "length",
            node,
        ) from None
    if not words or total != int(total):
        raise make_analysis_error(f"{text.strip()!r} is not a duration in whole milliseconds", node)
    return int(total)


def add_window_columns(stage: Stage, window: Windowing[TypedExpression]) -> tuple[Field, Field, Field]:
    """Add the columns of the start, the end, and the last moment of windows, and return them.

    Args:
        stage: the query so far; a row becomes one for each window.
        window: the windows.
    """
    session, dtype = stage.session, window.time.dtype
    start, end, last = session.new_name(), session.new_name(), session.new_name()
    nullable = window.time.nullable
    size, step, offset = window.size_ms * 1000, window.step_ms * 1000, window.offset_ms * 1000
    if size == step:
        bounds = [
            (name, FunctionCall(title, bound_of_window, (window.time,), dtype, options=(size, offset, shift)))
            for name, title, shift in (
                (start, f"window_start_{size}_{offset}", 0),
                (end, f"window_end_{size}_{offset}", size),
            )
        ]
        kept = [(field.name, reference(field)) for field in stage.plan.fields]
        stage.plan = Project(stage.plan, (*kept, *bounds))
        # A row without a time is in no window, as in Spark.
        if nullable:
            stage.filter(IsNull(reference(Field(start, dtype, nullable=True)), negated=True))
    else:
        (column,) = stage.add([window.time])
        kind = GrowingWindowsOf if window.kind == "cumulate" else WindowsOf
        stage.plan = Expand(
            stage.plan,
            kind(column, start, end, size, step, offset),
            (Field(start, dtype, nullable=False), Field(end, dtype, nullable=False)),
            window.describe(),
            added_keys=frozenset((end,) if window.kind == "cumulate" else (start,)),
        )
    shown = [(field.name, reference(field)) for field in stage.plan.fields]
    moment = FunctionCall(
        "window_time", shift_time, (reference(Field(end, dtype, nullable=False)),), dtype, options=(-1000,)
    )
    stage.plan = Project(stage.plan, (*shown, (last, moment)))
    return tuple(Field(name, dtype, nullable=False) for name in (start, end, last))  # type: ignore[return-value]
