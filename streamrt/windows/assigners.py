"""Window assigners: which windows a record is in."""

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal

from streamrt.errors import ArgumentValueError
from streamrt.topics.durations import milliseconds
from streamrt.windows.session import gap_of
from streamrt.windows.window import END_OF_TIME, Window

__all__ = [
    "EventTimeSessions",
    "GlobalWindows",
    "MergingWindowAssigner",
    "ProcessingTimeSessions",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
    "WindowTime",
]

WindowTime = Literal["event", "processing"]


class WindowAssigner(abc.ABC):
    """Says in which windows a record is, for `StreamingDataFrame.window`. Derive from it for windows of your own.

    The object is pickled with the operators, and must not keep anything from record to record.

    Attributes:
        time: the clock that ends the windows: "event" for event time, "processing" for the wall clock, which makes no
            record late.

    Example:
        ```python
        class Shifts(WindowAssigner):
            def assign_windows(self, value, timestamp, now):
                start = Window.start_of(timestamp, 8 * 3_600_000, 6 * 3_600_000)
                yield Window(max(start, 0), start + 8 * 3_600_000)
        ```
    """

    time: ClassVar[WindowTime] = "event"

    @abc.abstractmethod
    def assign_windows(self, value: Any, timestamp: int, now: int) -> Iterable[Window]:
        """Return the windows of a record; without one, the record is dropped.

        Args:
            value: its value.
            timestamp: its event time in milliseconds.
            now: the wall clock, in milliseconds since the Unix epoch.
        """


class MergingWindowAssigner(WindowAssigner):
    """An assigner whose windows merge, such as sessions. By default, those that overlap or touch become one."""

    def merge_windows(self, windows: Sequence[Window]) -> Iterable[tuple[Window, Sequence[Window]]]:
        """Return the windows that result from merging, each with those that it replaces.

        Args:
            windows: the open windows of a key, with that of the new record. Windows that are in no result stay.
        """
        group: list[Window] = []
        covered: Window | None = None
        for window in sorted(windows):
            if covered is not None and covered.intersects(window):
                covered = covered.cover(window)
                group.append(window)
                continue
            if covered is not None and len(group) > 1:
                yield covered, group
            covered, group = window, [window]
        if covered is not None and len(group) > 1:
            yield covered, group


@dataclass(frozen=True)
class TumblingEventTimeWindows(WindowAssigner):
    """Consecutive windows of event time of equal length.

    Attributes:
        size: length in milliseconds, or a timedelta.
        offset: distance of the starts from multiples of the length, in the same form; less than the length.

    Example:
        >>> list(TumblingEventTimeWindows(10_000, offset=-2_000).assign_windows(None, 9_000, 0))
        [Window(start=8000, end=18000)]
    """

    size: int | timedelta
    offset: int | timedelta = 0

    def __post_init__(self) -> None:
        _check_fixed(self, self.size, self.size, self.offset)

    def assign_windows(self, value: Any, timestamp: int, now: int) -> tuple[Window, ...]:  # noqa: D102
        return self._window_at(timestamp)

    def _window_at(self, time: int) -> tuple[Window, ...]:
        size: Any = self.size
        start = time - (time - self.offset) % size  # type: ignore[operator]
        return (Window(max(start, 0), start + size),)


@dataclass(frozen=True)
class TumblingProcessingTimeWindows(TumblingEventTimeWindows):
    """Consecutive windows of equal length by the wall clock; as `TumblingEventTimeWindows`."""

    time: ClassVar[WindowTime] = "processing"

    def assign_windows(self, value: Any, timestamp: int, now: int) -> tuple[Window, ...]:  # noqa: D102
        return self._window_at(now)


@dataclass(frozen=True)
class SlidingEventTimeWindows(WindowAssigner):
    """Overlapping windows of event time of equal length, as of `hopping_window`.

    Attributes:
        size: length in milliseconds, or a timedelta.
        slide: distance between the starts of two windows, in the same form.
        offset: distance of the starts from multiples of `slide`, in the same form; less than `slide`.

    Example:
        >>> list(SlidingEventTimeWindows(10_000, 5_000).assign_windows(None, 12_000, 0))
        [Window(start=5000, end=15000), Window(start=10000, end=20000)]
    """

    size: int | timedelta
    slide: int | timedelta
    offset: int | timedelta = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "slide", milliseconds(f"{type(self).__name__}(slide=...)", self.slide, least=1))
        _check_fixed(self, self.size, self.slide, self.offset)

    def assign_windows(self, value: Any, timestamp: int, now: int) -> list[Window]:  # noqa: D102
        return self._windows_at(timestamp)

    def _windows_at(self, time: int) -> list[Window]:
        size: Any = self.size
        slide: Any = self.slide
        last = time - (time - self.offset) % slide  # type: ignore[operator]
        # The lowest start of a window with this time; windows begin in 1970 at the earliest, and the first is cut off there.
        lowest = max(last - (last + size - time - 1) // slide * slide, last - (last + slide - 1) // slide * slide)
        return [Window(max(start, 0), start + size) for start in range(lowest, last + 1, slide)]


@dataclass(frozen=True)
class SlidingProcessingTimeWindows(SlidingEventTimeWindows):
    """Overlapping windows of equal length by the wall clock; as `SlidingEventTimeWindows`."""

    time: ClassVar[WindowTime] = "processing"

    def assign_windows(self, value: Any, timestamp: int, now: int) -> list[Window]:  # noqa: D102
        return self._windows_at(now)


@dataclass(frozen=True)
class EventTimeSessions(MergingWindowAssigner):
    """Records of a key that are not further apart than a gap. A session ends the gap after its last record.

    Attributes:
        gap: the gap in milliseconds, or as a timedelta; or a function of a record's value that returns the gap after it.

    Example:
        >>> list(EventTimeSessions(5_000).assign_windows(None, 1_000, 0))
        [Window(start=1000, end=6000)]
    """

    gap: int | timedelta | Callable[[Any], int | timedelta]

    def __post_init__(self) -> None:
        if not callable(self.gap):
            object.__setattr__(self, "gap", milliseconds(f"{type(self).__name__}(gap=...)", self.gap, least=1))

    def assign_windows(self, value: Any, timestamp: int, now: int) -> tuple[Window, ...]:  # noqa: D102
        return self._session_at(value, timestamp)

    def _session_at(self, value: Any, time: int) -> tuple[Window, ...]:
        gap: Any = gap_of(self.gap, value) if callable(self.gap) else self.gap
        return (Window(time, time + gap),)


@dataclass(frozen=True)
class ProcessingTimeSessions(EventTimeSessions):
    """Records of a key that do not come further apart than a gap, by the wall clock; as `EventTimeSessions`."""

    time: ClassVar[WindowTime] = "processing"

    def assign_windows(self, value: Any, timestamp: int, now: int) -> tuple[Window, ...]:  # noqa: D102
        return self._session_at(value, now)


@dataclass(frozen=True)
class GlobalWindows(WindowAssigner):
    """One window for all records of a key. It never ends; a trigger says when it is emitted."""

    def assign_windows(self, value: Any, timestamp: int, now: int) -> tuple[Window, ...]:  # noqa: D102
        return _GLOBAL


_GLOBAL = (Window(0, END_OF_TIME),)


def _check_fixed(assigner: Any, size: Any, step: Any, offset: Any) -> None:
    """Convert the lengths of fixed windows to milliseconds, and check them."""
    name = type(assigner).__name__
    whole = milliseconds(f"{name}(size=...)", size, least=1)
    distance = milliseconds(f"{name}(size=...)", step, least=1)
    shift = milliseconds(f"{name}(offset=...)", offset, least=None)
    if distance > whole:
        raise ArgumentValueError(
            f"{name}(slide={distance}): slide must be at most the size of {whole} ms, or some records would be in no window"
        )
    if abs(shift) >= distance:
        raise ArgumentValueError(
            f"{name}(offset={shift}): the offset must be less than the distance of {distance} ms between the starts of two "
            "windows, in both directions"
        )
    object.__setattr__(assigner, "size", whole)
    object.__setattr__(assigner, "offset", shift)


def merged_groups(
    assigner: MergingWindowAssigner, opened: Sequence[Window], window: Window
) -> Iterator[tuple[Window, list[Window], bool]]:
    """Yield what a new window merges to: the result, the open windows in it, and whether the new window is also in it."""
    known = [*opened] if window in opened else [*opened, window]
    for result, merged in assigner.merge_windows(known):
        others = sorted(other for other in merged if other in opened)
        if others:
            yield result, others, window in merged
