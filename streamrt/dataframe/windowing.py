"""Windows of dataframes. The public functions are methods of `StreamingDataFrame`."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal, TypeVar, get_args, overload

from streamrt.arguments import checked
from streamrt.dataframe.branch import Frame
from streamrt.dataframe.clocks import WindowClock
from streamrt.dataframe.triggering import pane_store, template_of
from streamrt.dataframe.unfinished import AddWindow
from streamrt.dataframe.whole_windows import add_whole_window
from streamrt.dataframe.window_definitions import (
    AssignedWindowDefinition,
    CountWindowDefinition,
    TimeWindowDefinition,
)
from streamrt.errors import ArgumentValueError, argument_error
from streamrt.operators.functions import require_callable
from streamrt.operators.late import OnLate
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics.durations import milliseconds
from streamrt.topology import caller
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.assigners import (
    ProcessingTimeSessions,
    SlidingProcessingTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
    WindowTime,
)
from streamrt.windows.closing import TimeWindowOperator, WindowOperator
from streamrt.windows.count import CountWindowOperator
from streamrt.windows.fixed import FixedWindow, Trigger
from streamrt.windows.partial_window import PartialWindow
from streamrt.windows.session import DynamicSessionWindow, GapOf, SessionWindow
from streamrt.windows.sliding import SlidingWindow
from streamrt.windows.triggered import TriggeredWindow

logger = logging.getLogger("streamrt")

_SHORT_MS = 1_000
"""A number below this is probably meant as seconds."""

_NO_STORE = StoreSpec()
_NO_AGGREGATION = Aggregation((), (), single=False)

F = TypeVar("F", bound=Frame)


@overload
def tumbling_window(
    self: F,
    duration_ms: int | timedelta,
    grace_ms: int | timedelta = 0,
    name: str | None = None,
    on_late: OnLate | None = None,
    before_update: Trigger | None = None,
    after_update: Trigger | None = None,
    *,
    offset_ms: int | timedelta = 0,
    time: Literal["event"] = "event",
) -> TimeWindowDefinition[F]: ...


@overload
def tumbling_window(
    self: F,
    duration_ms: int | timedelta,
    grace_ms: int | timedelta = 0,
    name: str | None = None,
    on_late: OnLate | None = None,
    before_update: Trigger | None = None,
    after_update: Trigger | None = None,
    *,
    offset_ms: int | timedelta = 0,
    time: Literal["processing"],
) -> AssignedWindowDefinition[F]: ...


def tumbling_window(
    self: F,
    duration_ms: int | timedelta,
    grace_ms: int | timedelta = 0,
    name: str | None = None,
    on_late: OnLate | None = None,
    before_update: Trigger | None = None,
    after_update: Trigger | None = None,
    *,
    offset_ms: int | timedelta = 0,
    time: WindowTime = "event",
) -> TimeWindowDefinition[F] | AssignedWindowDefinition[F]:
    """Aggregate records in consecutive event-time windows of equal length.

    A window is [start, start + duration), and starts at a multiple of the duration since 1970. Each key has
    separate windows; records without a key are left out.

    Args:
        duration_ms: length of a window, in milliseconds or as a timedelta, which is rounded to milliseconds.
        grace_ms: time after its end during which a window stays open for late records, in milliseconds or as a
            timedelta.
        name: prefix of the store name; required for a second window of the same kind, length and aggregation.
        on_late: called for each late record and each window that it missed, with value, key, event time (ms),
            lateness (ms), start and end of the window, store name, topic, partition and offset. A true result logs
            a warning. None: a warning is logged. There is at most one warning in 30 seconds.
        before_update: called before a record is counted, with the aggregate so far, value, key, event time and
            headers. A true result emits the window as it is and empties it; the record is not counted in it. With
            `current()`, nothing is emitted in this case.
        after_update: called in the same way, with the aggregate after the record was counted.
        offset_ms: distance of the starts of windows from multiples of the duration, in milliseconds or as a timedelta, such
            as `timedelta(hours=-8)` for days that begin at 16:00 UTC. The window that begins before 1970 begins there.
        time: the clock: "event" for the event time of records, "processing" for the wall clock. With the wall clock, records
            are in the window of the moment at which they are processed, no record is late, and `grace_ms`, `on_late`,
            `before_update` and `after_update` are refused.

    Returns:
        The definition of a window: next, say what to compute, such as `.sum()`, and when to emit it, such as
        `.final()`.

    Raises:
        ConfigurationError: if a duration is too short, or `name` is not allowed.
        InvalidOperationError: if `on_late`, `before_update` or `after_update` is not a function.

    Example:
        ```python
        hourly = sdf.tumbling_window(timedelta(hours=1), grace_ms=timedelta(minutes=5)).count().final()
        ```
    """
    duration = _check_length("tumbling_window", "duration_ms", duration_ms)
    offset = _check_offset("tumbling_window", offset_ms, duration)
    if _by_wall_clock("tumbling_window", time, grace_ms, on_late, before_update, after_update):
        assigner = TumblingProcessingTimeWindows(duration, offset)
        return _on_wall_clock(self, f"tumbling_window_{duration}{_offset_suffix(offset)}", assigner, name)
    template = _make_fixed_window(
        "tumbling_window", duration, duration, offset, grace_ms, on_late, before_update, after_update
    )
    return TimeWindowDefinition(emitting(self), f"tumbling_window_{duration}{_offset_suffix(offset)}", template, name)


@overload
def hopping_window(
    self: F,
    duration_ms: int | timedelta,
    step_ms: int | timedelta,
    grace_ms: int | timedelta = 0,
    name: str | None = None,
    on_late: OnLate | None = None,
    before_update: Trigger | None = None,
    after_update: Trigger | None = None,
    *,
    offset_ms: int | timedelta = 0,
    time: Literal["event"] = "event",
) -> TimeWindowDefinition[F]: ...


@overload
def hopping_window(
    self: F,
    duration_ms: int | timedelta,
    step_ms: int | timedelta,
    grace_ms: int | timedelta = 0,
    name: str | None = None,
    on_late: OnLate | None = None,
    before_update: Trigger | None = None,
    after_update: Trigger | None = None,
    *,
    offset_ms: int | timedelta = 0,
    time: Literal["processing"],
) -> AssignedWindowDefinition[F]: ...


def hopping_window(
    self: F,
    duration_ms: int | timedelta,
    step_ms: int | timedelta,
    grace_ms: int | timedelta = 0,
    name: str | None = None,
    on_late: OnLate | None = None,
    before_update: Trigger | None = None,
    after_update: Trigger | None = None,
    *,
    offset_ms: int | timedelta = 0,
    time: WindowTime = "event",
) -> TimeWindowDefinition[F] | AssignedWindowDefinition[F]:
    """Aggregate records in overlapping event-time windows of equal length.

    A window is [start, start + duration), and starts at a multiple of the step since 1970. A record is in several
    windows.

    Args:
        duration_ms: length of a window, in milliseconds or as a timedelta.
        step_ms: distance between the starts of two windows, in the same form; less than the duration.
        grace_ms: time after its end during which a window stays open for late records, in the same form.
        name: as for `tumbling_window`, like the functions.
        on_late: called once for each window that a record missed.
        before_update: called for each window that a record is in.
        after_update: called for each window that a record is in.
        offset_ms: distance of the starts of windows from multiples of the step; see `tumbling_window`.
        time: the clock; see `tumbling_window`.

    Returns:
        The definition of a window, as from `tumbling_window`.

    Raises:
        ConfigurationError: if a duration is too short or too long, or `name` is not allowed.
        InvalidOperationError: if `on_late`, `before_update` or `after_update` is not a function.

    Example:
        ```python
        smooth = sdf.hopping_window(timedelta(hours=1), step_ms=timedelta(minutes=10)).mean().current()
        ```
    """
    duration = _check_length("hopping_window", "duration_ms", duration_ms)
    step = milliseconds("hopping_window(step_ms=...)", step_ms, least=1)
    if step >= duration:
        raise ArgumentValueError(
            f"hopping_window(step_ms={step}): step_ms must be less than the duration of {duration} ms; use "
            "tumbling_window() for windows that do not overlap"
        )
    offset = _check_offset("hopping_window", offset_ms, step)
    if _by_wall_clock("hopping_window", time, grace_ms, on_late, before_update, after_update):
        assigner = SlidingProcessingTimeWindows(duration, step, offset)
        return _on_wall_clock(self, f"hopping_window_{duration}_{step}{_offset_suffix(offset)}", assigner, name)
    template = _make_fixed_window(
        "hopping_window", duration, step, offset, grace_ms, on_late, before_update, after_update
    )
    store = f"hopping_window_{duration}_{step}{_offset_suffix(offset)}"
    return TimeWindowDefinition(emitting(self), store, template, name)


def sliding_window(
    self: F,
    duration_ms: int | timedelta,
    grace_ms: int | timedelta = 0,
    name: str | None = None,
    on_late: OnLate | None = None,
    *,
    offset_ms: None = None,
) -> TimeWindowDefinition[F]:
    """Aggregate, for each record, the records in the time before it.

    There is a window [t - duration, t], both ends inclusive, for each event time t of a record.

    Args:
        duration_ms: length of a window, in milliseconds or as a timedelta.
        grace_ms: time after its end during which a window stays open for late records, in the same form.
        name: as for `tumbling_window`.
        on_late: called for each record that is too late for the window that ends at its time. Later windows may
            still count it.
        offset_ms: refused, because such a window has no start that could be moved.

    Returns:
        The definition of a window, as from `tumbling_window`.

    Raises:
        ConfigurationError: if a duration is too short, `name` is not allowed, or `offset_ms` is given.
        InvalidOperationError: if `on_late` is not a function.

    Example:
        ```python
        last_minute = sdf.sliding_window(timedelta(minutes=1)).agg(mean=Mean("celsius"), n=Count()).current()
        ```
    """
    if offset_ms is not None:
        raise ArgumentValueError(
            "sliding_window() has no offset_ms: its windows end at each record, so they have no start that could be moved; "
            "leave it out, or use tumbling_window() or hopping_window()"
        )
    duration = _check_length("sliding_window", "duration_ms", duration_ms)
    template = SlidingWindow(
        **_check_times("sliding_window", grace_ms, on_late),
        duration_ms=duration,
    )
    return TimeWindowDefinition(emitting(self), f"sliding_window_{duration}", template, name)


@overload
def session_window(
    self: F,
    inactivity_gap_ms: int | timedelta | GapOf,
    grace_ms: int | timedelta = 0,
    name: str | None = None,
    on_late: OnLate | None = None,
    *,
    time: Literal["event"] = "event",
) -> TimeWindowDefinition[F]: ...


@overload
def session_window(
    self: F,
    inactivity_gap_ms: int | timedelta | GapOf,
    grace_ms: int | timedelta = 0,
    name: str | None = None,
    on_late: OnLate | None = None,
    *,
    time: Literal["processing"],
) -> AssignedWindowDefinition[F]: ...


def session_window(
    self: F,
    inactivity_gap_ms: int | timedelta | GapOf,
    grace_ms: int | timedelta = 0,
    name: str | None = None,
    on_late: OnLate | None = None,
    *,
    time: WindowTime = "event",
) -> TimeWindowDefinition[F] | AssignedWindowDefinition[F]:
    """Aggregate records in sessions: a session ends after a gap without records.

    Records of a key are in one session if they are at most the gap apart, or if records between them connect them.
    A session is [first, last + 1). A record may join two sessions, so aggregations must be able to merge their
    states.

    Args:
        inactivity_gap_ms: maximum distance between records of a session, in milliseconds or as a timedelta. Or a function
            of a record's value that returns the gap after this record.
        grace_ms: time during which sessions stay open for late records, in the same form.
        name: as for `tumbling_window`.
        on_late: called for each record that is too late for a session.
        time: the clock; see `tumbling_window`. By the wall clock, a session ends the gap after its last record.

    Returns:
        The definition of a window, as from `tumbling_window`.

    Raises:
        ConfigurationError: if a duration is too short, or `name` is not allowed.
        InvalidOperationError: if `on_late` is not a function.

    Example:
        ```python
        visits = clicks.session_window(timedelta(minutes=30)).agg(clicks=Count(), pages=Collect("page")).final()
        ```
    """
    if _by_wall_clock("session_window", time, grace_ms, on_late):
        gap_of_all = "dynamic" if callable(inactivity_gap_ms) else milliseconds("inactivity_gap_ms", inactivity_gap_ms)
        return _on_wall_clock(self, f"session_window_{gap_of_all}", ProcessingTimeSessions(inactivity_gap_ms), name)
    times = _check_times("session_window", grace_ms, on_late)
    if callable(inactivity_gap_ms):
        dynamic = DynamicSessionWindow(**times, gap=inactivity_gap_ms)
        return TimeWindowDefinition(emitting(self), "session_window_dynamic", dynamic, name)
    gap = _check_length("session_window", "inactivity_gap_ms", inactivity_gap_ms)
    template = SessionWindow(**times, gap_ms=gap)
    return TimeWindowDefinition(emitting(self), f"session_window_{gap}", template, name)


def tumbling_count_window(self: F, count: int, name: str | None = None) -> CountWindowDefinition[F]:
    """Aggregate each `count` records of a key, in the order of their arrival, whatever their event times.

    Start and end of a window are the lowest and the highest event time in it.

    Args:
        count: number of records in a window; at least 2.
        name: as for `tumbling_window`.

    Returns:
        The definition of a window: next, say what to compute and when to emit it.

    Raises:
        ConfigurationError: if the number is too small, or `name` is not allowed.

    Example:
        ```python
        tens = sdf.tumbling_count_window(10).mean().final()
        ```
    """
    size = _check_count("tumbling_count_window(count=...)", count, 2)
    return CountWindowDefinition(emitting(self), "tumbling_count_window", _make_count_window(size, size), name)


def hopping_count_window(self: F, count: int, step: int, name: str | None = None) -> CountWindowDefinition[F]:
    """Aggregate `count` records of a key at a time, with a new window after each `step` records.

    Args:
        count: number of records in a window; at least 2.
        step: number of records between the starts of two windows; at least 1 and at most `count`.
        name: as for `tumbling_window`.

    Returns:
        The definition of a window: next, say what to compute and when to emit it.

    Raises:
        ConfigurationError: if a number is too small or too large, or `name` is not allowed.

    Example:
        ```python
        sdf.hopping_count_window(count=10, step=5).max().final()
        ```
    """
    size = _check_count("hopping_count_window(count=...)", count, 2)
    every = _check_count("hopping_count_window(step=...)", step, 1)
    if every > size:
        raise ArgumentValueError(
            f"hopping_count_window(step={every}): step must be at most the count of {size}, or some records would "
            "be in no window"
        )
    return CountWindowDefinition(emitting(self), "hopping_count_window", _make_count_window(size, every), name)


def sliding_count_window(self: F, count: int, name: str | None = None) -> CountWindowDefinition[F]:
    """Aggregate the last `count` records of a key.

    Args:
        count: number of records in a window; at least 2.
        name: as for `tumbling_window`.

    Returns:
        The definition of a window: next, say what to compute and when to emit it.

    Raises:
        ConfigurationError: if the number is too small, or `name` is not allowed.

    Example:
        ```python
        sdf.sliding_count_window(3).sum().final()
        ```
    """
    size = _check_count("sliding_count_window(count=...)", count, 2)
    return CountWindowDefinition(emitting(self), "sliding_count_window", _make_count_window(size, 1), name)


def emitting(frame: F) -> AddWindow[F]:
    """Return the function that adds a window to a frame, and note that the window is not emitted until it is called."""
    emitted = frame._branch.builder.expect_window(caller())

    def add(store: str, operator: WindowOperator | TriggeredWindow, clock: WindowClock | None = None) -> F:
        added = add_window(frame, store, operator, clock)
        emitted()
        return added

    return add


def add_window(frame: F, store: str, operator: WindowOperator | TriggeredWindow, clock: WindowClock | None = None) -> F:
    """Add a window.

    Raises:
        ConfigurationError: if the clock is invalid.
        InvalidOperationError: if the dataframe already has a window with the same store, or cannot have the clock.
    """
    branch = frame._branch
    if isinstance(operator, PartialWindow):
        return frame._with(
            add_whole_window(branch, store, operator, clock or WindowClock(None, None, None, "watermark"))
        )
    if clock is not None and isinstance(operator, TimeWindowOperator | TriggeredWindow):
        operator = replace(operator, closing=clock.closing(branch))
    store = branch.own_store(store, "a window", "tumbling_window(..., name='...')")
    if isinstance(operator, TriggeredWindow):
        return frame._with(branch.add(replace(operator, store=pane_store(branch, store, operator.closing))))
    return frame._with(branch.add(replace(operator, store=branch.store(store, TimedTransaction))))


def _by_wall_clock(
    method: str,
    time: str,
    grace_ms: int | timedelta,
    on_late: Any,
    before_update: Any = None,
    after_update: Any = None,
) -> bool:
    """Return whether windows are by the wall clock; refuse what has no effect on these."""
    if time not in get_args(WindowTime):
        raise argument_error(
            f"{method}(time={time!r}): it must be 'event' (the event time of records) or 'processing' (the wall clock)",
            of_type=isinstance(time, str),
        )
    if time == "event":
        return False
    arguments = {
        "grace_ms": grace_ms,
        "on_late": on_late,
        "before_update": before_update,
        "after_update": after_update,
    }
    for name, given in arguments.items():
        if given:
            raise ArgumentValueError(
                f"{method}({name}=...) has no effect with time='processing': no record is late by the wall clock, and a "
                "trigger() says when such windows are emitted early"
            )
    return True


def _on_wall_clock(frame: F, store: str, assigner: WindowAssigner, name: str | None) -> AssignedWindowDefinition[F]:
    """Return the definition of a window by the wall clock."""
    template = template_of(assigner, method=type(assigner).__name__)
    return AssignedWindowDefinition(emitting(frame), f"{store}_processing", template, name)


def _make_fixed_window(
    method: str,
    duration: int,
    step: int,
    offset: int,
    grace_ms: int | timedelta,
    on_late: OnLate | None,
    before_update: Trigger | None,
    after_update: Trigger | None,
) -> FixedWindow:
    for name, trigger in (("before_update", before_update), ("after_update", after_update)):
        if trigger is not None:
            require_callable(f"{method}({name}=...)", trigger)
    return FixedWindow(
        **_check_times(method, grace_ms, on_late),
        duration_ms=duration,
        step_ms=step,
        offset_ms=offset,
        before_update=before_update,
        after_update=after_update,
    )


def _check_offset(method: str, given: int | timedelta, step: int) -> int:
    """Return the offset of windows in milliseconds."""
    offset = milliseconds(f"{method}(offset_ms=...)", given, least=None)
    if abs(offset) >= step:
        raise ArgumentValueError(
            f"{method}(offset_ms={offset}): the offset must be less than the distance of {step} ms between the starts of two "
            "windows, in both directions"
        )
    return offset


def _offset_suffix(offset: int) -> str:
    """Return what the name of a store says of the offset of its windows."""
    return f"_offset_{offset}" if offset else ""


def _make_count_window(count: int, step: int) -> CountWindowOperator:
    return CountWindowOperator(_NO_STORE, _NO_AGGREGATION, final=True, count=count, step=step)


def _check_times(method: str, grace_ms: int | timedelta, on_late: OnLate | None) -> dict[str, Any]:
    if on_late is not None:
        require_callable(f"{method}(on_late=...)", on_late)
    return {
        "store": _NO_STORE,
        "aggregation": _NO_AGGREGATION,
        "final": True,
        "grace_ms": milliseconds(f"{method}(grace_ms=...)", grace_ms),
        "on_late": on_late,
    }


def _check_length(method: str, argument: str, given: int | timedelta) -> int:
    """Return the length of a window in milliseconds, and log a warning if it is probably meant as seconds."""
    length = milliseconds(f"{method}({argument}=...)", given, least=1)
    # Nobody wants windows of 3,600 or 86,400 ms; hours and days in seconds are such numbers.
    minutes = length % 600 == 0 and length % 1_000 != 0
    if (length < _SHORT_MS or minutes) and not isinstance(given, timedelta):
        logger.warning(
            "%s(%s=%d) defined at %s lasts %d milliseconds: durations are in milliseconds; for seconds, write "
            "%s=timedelta(seconds=%d); otherwise write timedelta(milliseconds=%d)",
            *(method, argument, length, caller(), length, argument, length, length),
        )
    return length


def _check_count(what: str, given: int, least: int) -> int:
    return checked(what, given, int, f"a number of records, at least {least}", lambda count: count >= least)
