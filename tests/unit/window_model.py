"""Model of windows, in the simplest way: keeps all records, and computes each result again from those of its window.

Written from the definitions, without a look at how streamrt.windows does it. `Model` says what a window puts out for each
record, and `on_frame` puts the same window on a dataframe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamrt import StreamingDataFrame
from streamrt.windows import (
    Collect,
    CollectSet,
    Count,
    CountDistinct,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Reduce,
    Sum,
)

BOTH = ("count", "sum", "mean", "min", "max", "first", "last", "earliest", "latest", "distinct", "set", "reduce")
"""Aggregations for `current()` as well as for `final()`."""
AGGREGATIONS = (*BOTH, "collect", "agg")
AGGREGATORS: dict[str, Any] = {
    "first": First,
    "last": Last,
    "earliest": Earliest,
    "latest": Latest,
    "distinct": CountDistinct,
    "set": CollectSet,
}
"""Those that are given to `agg()`."""
TIMED = ("tumbling", "hopping", "sliding", "session")
COUNTED = ("tumbling_count", "hopping_count", "sliding_count")
IDLE_MS = 10_000


class Record(NamedTuple):
    """A record of the input."""

    key: bytes | None
    timestamp: int
    value: Any
    partition: int = 0


class Item(NamedTuple):
    """A record in a window."""

    timestamp: int
    arrival: int
    value: Any


class Output(NamedTuple):
    """A result of a window; its timestamp is the window's start."""

    value: dict[str, Any]
    key: bytes
    timestamp: int


class Late(NamedTuple):
    """Report about a window that a record came too late for."""

    value: Any
    key: bytes
    timestamp: int
    late_by: int
    start: int
    end: int


@dataclass(frozen=True)
class Window:
    """Which window.

    Attributes:
        kind: one of `TIMED` or `COUNTED`.
        size: duration or inactivity gap in milliseconds, or number of records.
        step: of hopping windows.
        grace: milliseconds.
        aggregation: one of `AGGREGATIONS`.
        final: whether results come when windows close, or with each record.
        closing: `closing_strategy`.
        before: `before_update`.
        after: `after_update`.
    """

    kind: str
    size: int
    step: int = 0
    grace: int = 0
    aggregation: str = "reduce"
    final: bool = True
    closing: str = "key"
    before: Callable[..., Any] | None = None
    after: Callable[..., Any] | None = None


# -- Results -----------------------------------------------------------------------------------------------------------


def append(values: list[Any], value: Any) -> list[Any]:
    """Reducer that shows which values came in which order."""
    return [*values, value]


def single(value: Any) -> list[Any]:
    """Initializer of the same."""
    return [value]


def join(left: list[Any], right: list[Any]) -> list[Any]:
    """Merger of the same."""
    return [*left, *right]


def counts(value: Any) -> bool:
    """Condition of some aggregations; None counts."""
    return value is None or value > 0


def result(aggregation: str, items: Sequence[Item]) -> Any:
    """Return the result over the records of a window, which are in the order in which they count."""
    if aggregation == "agg":
        counted = [item for item in items if counts(item.value)]
        some = {f"some_{name}": result(name, counted) for name in (*BOTH, "collect")}
        return {**{name: result(name, items) for name in (*BOTH, "collect")}, **some}
    if aggregation == "reduce":
        return [item.value for item in items] if items else None
    if aggregation == "collect":
        return [item.value for item in sorted(items, key=lambda item: item[:2])]
    known = [item for item in items if item.value is not None]
    values = [item.value for item in known]
    if aggregation == "count":
        return len(values)
    if aggregation == "distinct":
        return len(set(values))
    if aggregation == "set":
        return sorted(set(values))
    if aggregation == "sum":
        return sum(values)
    if not values:
        return None
    if aggregation == "mean":
        return sum(values, 0.0) / len(values)
    if aggregation in ("min", "max"):
        # Both return the first one of equals.
        return min(values) if aggregation == "min" else max(values)
    if aggregation in ("first", "last"):
        return values[0 if aggregation == "first" else -1]
    # The earliest one that came first, and the latest one that came last.
    ordered = sorted(known, key=lambda item: item.timestamp)
    return ordered[0 if aggregation == "earliest" else -1].value


def _value(window: Window, start: int, end: int, items: Sequence[Item]) -> dict[str, Any]:
    found = result(window.aggregation, items)
    bounds = {"start": start, "end": end}
    if window.aggregation != "agg":
        return {**bounds, "value": found}
    if not window.final:
        del found["collect"], found["some_collect"]
    return {**bounds, **found}


# -- The windows of one key --------------------------------------------------------------------------------------------


@dataclass
class _Span:
    """An open window: closed as soon as the clock is at `closes`."""

    start: int
    end: int
    closes: int
    items: list[Item] = field(default_factory=list)


class _Fixed:
    """Tumbling and hopping windows: [start, start + size), at each multiple of the step."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.spans: dict[int, _Span] = {}
        self.triggered: list[_Span] = []

    def add(self, record: Record, item: Item, clock: int) -> tuple[list[_Span], list[tuple[int, int, int]]]:
        window, late, updated = self.window, [], []
        step = window.step if window.kind == "hopping" else window.size
        self.triggered = []
        for start in range(0, record.timestamp + 1, step):
            end = start + window.size
            closes = end + window.grace
            if end <= record.timestamp:
                continue
            if closes <= clock:
                late.append((clock - window.grace - record.timestamp, start, end))
                continue
            span = self.spans.setdefault(start, _Span(start, end, closes))
            if self._asks(window.before, span, record):
                self.triggered.append(span)
                del self.spans[start]
                continue
            span.items.append(item)
            if self._asks(window.after, span, record):
                self.triggered.append(span)
                del self.spans[start]
                continue
            updated.append(span)
        return updated, late

    def _asks(self, callback: Callable[..., Any] | None, span: _Span, record: Record) -> bool:
        if callback is None:
            return False
        aggregated = _value(self.window, span.start, span.end, span.items)
        del aggregated["start"], aggregated["end"]
        shown = aggregated if self.window.aggregation == "agg" else aggregated["value"]
        return bool(callback(shown, record.value, record.key, record.timestamp, None))

    def open(self) -> list[_Span]:
        return list(self.spans.values())

    def drop(self, span: _Span) -> None:
        del self.spans[span.start]


class _Sliding:
    """[time - size, time] for the time of each record, over all records in it.

    Those that would begin before 0 begin and close with [0, size].
    """

    triggered: tuple[_Span, ...] = ()

    def __init__(self, window: Window) -> None:
        self.window = window
        self.items: list[Item] = []
        self.times: set[int] = set()

    def add(self, record: Record, item: Item, clock: int) -> tuple[list[_Span], list[tuple[int, int, int]]]:
        size, grace, time = self.window.size, self.window.grace, record.timestamp
        late = []
        if self._span(time).closes <= clock:
            late.append((clock - grace - time, max(0, time - size), time))
        if time + size + grace < clock:
            return [], late
        self.items.append(item)
        if not late:
            self.times.add(time)
        return [span for span in self.open() if span.closes > clock and time <= span.end <= time + size], late

    def open(self) -> list[_Span]:
        return [self._span(time) for time in sorted(self.times)]

    def drop(self, span: _Span) -> None:
        self.times.remove(span.end)

    def _span(self, time: int) -> _Span:
        start = max(0, time - self.window.size)
        items = [item for item in self.items if start <= item.timestamp <= time]
        return _Span(start, time, start + self.window.size + self.window.grace + 1, items)


class _Session:
    """Records that are not further apart than the gap; what closes is what no record may reach any more."""

    triggered: tuple[_Span, ...] = ()

    def __init__(self, window: Window) -> None:
        self.window = window
        self.sessions: list[list[Item]] = []

    def add(self, record: Record, item: Item, clock: int) -> tuple[list[_Span], list[tuple[int, int, int]]]:
        gap, grace, time = self.window.size, self.window.grace, record.timestamp
        if time + gap + grace < clock:
            return [], [(clock - grace - gap - time, time, time + 1)]
        touched = [
            session
            for session in sorted(self.sessions, key=min)
            if min(session).timestamp - gap <= time <= max(session).timestamp + gap
        ]
        assert len(touched) <= 2, "two sessions that one more record lies between would be one"
        # The record is added to the session on the left, to which that on the right is added.
        left, right = [*touched, [], []][:2]
        grown = [*left, item, *right]
        self.sessions = [session for session in self.sessions if session not in touched]
        self.sessions.append(grown)
        return [self._span(grown)], []

    def open(self) -> list[_Span]:
        return [self._span(session) for session in self.sessions]

    def drop(self, span: _Span) -> None:
        self.sessions.remove(span.items)

    def _span(self, session: list[Item]) -> _Span:
        first, last = min(session).timestamp, max(session).timestamp
        return _Span(first, last + 1, last + 2 * self.window.size + self.window.grace + 1, session)


_KINDS: dict[str, Any] = {"tumbling": _Fixed, "hopping": _Fixed, "sliding": _Sliding, "session": _Session}


# -- All keys of one partition -----------------------------------------------------------------------------------------


class Model:
    """The windows of one partition.

    Args:
        window: which ones.

    Attributes:
        late: what `on_late` is told.
        observed: the highest timestamp of all records with keys; -1 before.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self.late: list[Late] = []
        self.observed = -1
        self._watermark = -1
        self._clocks: dict[bytes, int] = {}
        self._keys: dict[bytes, Any] = {}
        self._items: dict[bytes, list[Item]] = {}
        self._arrivals = 0

    def record(self, record: Record) -> list[Output]:
        """Return what a record puts out, in order."""
        if record.key is None:
            return []
        item = Item(record.timestamp, self._arrivals, record.value)
        self._arrivals += 1
        if self.window.kind in COUNTED:
            return self._count(record.key, item)
        self.observed = max(self.observed, record.timestamp)
        self._clocks[record.key] = max(self._clocks.get(record.key, -1), record.timestamp)
        clock = self._clock(record.key)
        windows = self._keys.setdefault(record.key, _KINDS[self.window.kind](self.window))
        updated, late = windows.add(record, item, clock)
        self.late += [Late(record.value, record.key, record.timestamp, *found) for found in late]
        if not self.window.final:
            found = [(record.key, span) for span in sorted(updated, key=_order)]
            self._close(clock, [record.key] if self.window.closing == "key" else list(self._keys))
            return self._outputs(found)
        found = self._close(clock, [record.key] if self.window.closing == "key" else list(self._keys))
        triggered = [(record.key, span) for span in sorted(windows.triggered, key=_order)]
        return self._outputs(found + triggered)

    def tick(self, watermark: int) -> list[Output]:
        """Return what a watermark puts out."""
        self._watermark = max(self._watermark, watermark)
        found = self._close(self._watermark, list(self._keys))
        return self._outputs(found) if self.window.final else []

    def _clock(self, key: bytes) -> int:
        if self.window.closing == "watermark":
            return self._watermark
        return self._clocks[key] if self.window.closing == "key" else self.observed

    def _close(self, clock: int, keys: list[bytes]) -> list[tuple[bytes, _Span]]:
        """Drop the windows that are over; return them in the order of deadlines, equal ones in that of keys."""
        found = []
        for key in keys:
            for span in [span for span in self._keys[key].open() if span.closes <= clock]:
                self._keys[key].drop(span)
                found.append((key, span))
        # Keys are in order of their stored form, which begins with the length.
        found.sort(key=lambda entry: (entry[1].closes, len(entry[0]), entry[0], _order(entry[1])))
        return found

    def _outputs(self, found: list[tuple[bytes, _Span]]) -> list[Output]:
        return [Output(_value(self.window, span.start, span.end, span.items), key, span.start) for key, span in found]

    def _count(self, key: bytes, item: Item) -> list[Output]:
        items = self._items.setdefault(key, [])
        items.append(item)
        size = self.window.size
        step = {"tumbling_count": size, "hopping_count": self.window.step, "sliding_count": 1}[self.window.kind]
        outputs = []
        for first in range(0, len(items), step):
            inside = items[first : first + size]
            full = len(inside) == size
            if len(items) > first + size or (self.window.final and not full):
                continue
            start, end = min(inside).timestamp, max(inside).timestamp
            # Order is all that counts, timestamps do not.
            in_order = [Item(0, *other[1:]) if self.window.aggregation == "collect" else other for other in inside]
            value = _value(self.window, start, end, in_order)
            if "collect" in value:
                value["collect"] = [other.value for other in inside]
            outputs.append(Output(value, key, start))
        return outputs


def _order(span: _Span) -> tuple[int, int]:
    return span.start, span.end


def follow(model: Model, record: Record) -> list[Output]:
    """Return what a record of a stream with one partition puts out; there, the watermark follows each record."""
    outputs = model.record(record)
    if model.window.closing == "watermark" and model.observed >= 0:
        outputs += model.tick(model.observed)
    return outputs


def expected(window: Window, records: Sequence[Record]) -> list[Output]:
    """Return all outputs for the records of a stream with one partition, in order."""
    model = Model(window)
    return [output for record in records for output in follow(model, record)]


# -- The same on a dataframe -------------------------------------------------------------------------------------------


def on_frame(
    sdf: StreamingDataFrame, window: Window, name: str | None = None, on_late: Callable[..., bool] | None = None
) -> StreamingDataFrame:
    """Return the dataframe of a window's results."""
    definition = _define(sdf, window, name, on_late)
    if window.aggregation == "reduce":
        defined = definition.reduce(append, single, join)
    elif window.aggregation in AGGREGATORS:
        defined = definition.agg(value=AGGREGATORS[window.aggregation]())
    elif window.aggregation == "agg":
        every: dict[str, Any] = {"collect": Collect()} if window.final else {}
        makers: dict[str, Any] = {"count": Count, "sum": Sum, "mean": Mean, "min": Min, "max": Max, **AGGREGATORS}
        for name, maker in makers.items():
            every[name], every[f"some_{name}"] = maker(), maker(where=counts)
        if window.final:
            every["some_collect"] = Collect(where=counts)
        every["reduce"] = Reduce(append, single, join)
        every["some_reduce"] = Reduce(append, single, join, where=counts)
        defined = definition.agg(**every)
    else:
        defined = getattr(definition, window.aggregation)()
    closing: dict[str, Any] = {} if window.kind in COUNTED else {"closing_strategy": window.closing}
    if window.closing == "watermark":
        closing["idle_timeout_ms"] = IDLE_MS
    frame: StreamingDataFrame = defined.final(**closing) if window.final else defined.current(**closing)
    return frame


def _define(sdf: StreamingDataFrame, window: Window, name: str | None, on_late: Callable[..., bool] | None) -> Any:
    if window.kind in COUNTED:
        sizes = (window.size, window.step) if window.kind == "hopping_count" else (window.size,)
        return getattr(sdf, f"{window.kind}_window")(*sizes, name=name)
    options: dict[str, Any] = {"grace_ms": window.grace, "name": name, "on_late": on_late}
    if window.kind in ("tumbling", "hopping"):
        options |= {"before_update": window.before, "after_update": window.after}
    sizes = (window.size, window.step) if window.kind == "hopping" else (window.size,)
    return getattr(sdf, f"{window.kind}_window")(*sizes, **options)


def tagged(name: str) -> Any:
    """Return a function that adds the name of a window to its results."""
    return lambda value: [name, value]


def side_by_side(
    sdf: StreamingDataFrame, several: Sequence[Window], on_late: Sequence[Any] = ()
) -> list[StreamingDataFrame]:
    """Put windows on a dataframe, side by side; return the dataframes of their results."""
    return [
        on_frame(sdf, window, f"w{number}", on_late[number] if on_late else None).apply(tagged(f"w{number}"))
        for number, window in enumerate(several)
    ]


def sort_out(outputs: Sequence[tuple[Any, ...]], count: int) -> list[list[Output]]:
    """Return the outputs by window, in order."""
    found: list[list[Output]] = [[] for _ in range(count)]
    for (name, value), key, timestamp, *_ in outputs:
        found[int(name[1:])].append(Output(value, key, timestamp))
    return found


def shown(outputs: Sequence[Output]) -> list[str]:
    """Return outputs as strings, which tell 1, 1.0 and True apart."""
    return [repr((sorted(value.items()), key, timestamp)) for value, key, timestamp in outputs]
