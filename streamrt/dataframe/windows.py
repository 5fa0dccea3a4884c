"""Windows of dataframes: `sdf.tumbling_window(...)`, what to compute, and when to emit it."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from streamrt.dataframe.frame import Frame
from streamrt.dataframe.window_definitions import CountWindowDefinition, TimeWindowDefinition
from streamrt.errors import ArgumentValueError, InvalidOperationError, argument_error
from streamrt.operators.durations import milliseconds
from streamrt.operators.functions import require_callable
from streamrt.state import StoreSpec, TimedTransaction
from streamrt.topology import caller
from streamrt.windows import (
    Aggregator,
    Collect,
    Collector,
    Count,
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
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.closing import WindowOperator
from streamrt.windows.count import CountWindow
from streamrt.windows.fixed import FixedWindow, Trigger
from streamrt.windows.late import OnLate
from streamrt.windows.session import SessionWindow
from streamrt.windows.sliding import SlidingWindow

# Aggregations are found here, too, as in Quix Streams.
__all__ = [
    "Aggregator",
    "Collect",
    "Collector",
    "Count",
    "Earliest",
    "First",
    "Last",
    "Latest",
    "Max",
    "Mean",
    "Min",
    "Reduce",
    "Sum",
    "WindowedFrame",
]

logger = logging.getLogger("streamrt")

_SHORT_MS = 1_000
"""Shorter windows given as a number are rather meant as so many seconds."""

F = TypeVar("F", bound="WindowedFrame")


class WindowedFrame(Frame):
    """Operations of dataframes that define windows."""

    def tumbling_window(
        self: F,
        duration_ms: int | timedelta,
        grace_ms: int | timedelta = 0,
        name: str | None = None,
        on_late: OnLate | None = None,
        before_update: Trigger | None = None,
        after_update: Trigger | None = None,
    ) -> TimeWindowDefinition[F]:
        """Divide event time into windows of equal length that follow each other, and aggregate the records in each.

        A window is [start, start + duration), and starts at a multiple of the duration since 1970. Each key has windows of
        its own; records without a key are left out.

        Args:
            duration_ms: length of a window, in milliseconds or as a timedelta, which is rounded to milliseconds.
            grace_ms: how long after its end a window stays open for late records, likewise.
            name: begins the name of the store; tells apart windows of the same kind, length and aggregation.
            on_late: called for each record and each window that it is too late for, with value, key, event time (ms),
                lateness (ms), start and end of the window, store name, topic, partition and offset. What is true in return
                lets a warning be logged. None: a warning is logged. There is one warning in 30 seconds at most.
            before_update: called before a record is counted, with the aggregate so far, value, key, event time and
                headers; what is true in return emits the window as it is and empties it, and the record is not counted in
                it. With `current()`, nothing is emitted then.
            after_update: likewise, called with the aggregate after the record was counted.

        Returns:
            The definition of a window: say what to compute next, such as `.sum()`, and when to emit it, such as `.final()`.

        Raises:
            ConfigurationError: if a time is too short, or `name` is not allowed.
            InvalidOperationError: if something else than a function was given for one.

        Example:
            ```python
            hourly = sdf.tumbling_window(timedelta(hours=1), grace_ms=timedelta(minutes=5)).count().final()
            ```
        """
        duration = _length("tumbling_window", "duration_ms", duration_ms)
        template = _fixed("tumbling_window", duration, duration, grace_ms, on_late, before_update, after_update)
        return TimeWindowDefinition(self, f"tumbling_window_{duration}", template, name)

    def hopping_window(
        self: F,
        duration_ms: int | timedelta,
        step_ms: int | timedelta,
        grace_ms: int | timedelta = 0,
        name: str | None = None,
        on_late: OnLate | None = None,
        before_update: Trigger | None = None,
        after_update: Trigger | None = None,
    ) -> TimeWindowDefinition[F]:
        """Aggregate the records in windows of equal length that begin more often than they end.

        A window is [start, start + duration), and starts at a multiple of the step since 1970. A record is in several
        windows.

        Args:
            duration_ms: length of a window, in milliseconds or as a timedelta.
            step_ms: distance between the starts of two windows, likewise; less than the duration.
            grace_ms: how long after its end a window stays open for late records, likewise.
            name: as for `tumbling_window`, and so are the functions.
            on_late: called once for each window that a record is too late for.
            before_update: called for each window that a record is in.
            after_update: called for each window that a record is in.

        Returns:
            The definition of a window, as `tumbling_window` does.

        Raises:
            ConfigurationError: if a time is too short or too long, or `name` is not allowed.
            InvalidOperationError: if something else than a function was given for one.

        Example:
            ```python
            smooth = sdf.hopping_window(timedelta(hours=1), step_ms=timedelta(minutes=10)).mean().current()
            ```
        """
        duration = _length("hopping_window", "duration_ms", duration_ms)
        step = milliseconds("hopping_window(step_ms=...)", step_ms, least=1)
        if step >= duration:
            raise ArgumentValueError(
                f"hopping_window(step_ms={step}): it must be less than the duration of {duration} ms; tumbling_window() is "
                "for windows that follow each other"
            )
        template = _fixed("hopping_window", duration, step, grace_ms, on_late, before_update, after_update)
        return TimeWindowDefinition(self, f"hopping_window_{duration}_{step}", template, name)

    def sliding_window(
        self: F,
        duration_ms: int | timedelta,
        grace_ms: int | timedelta = 0,
        name: str | None = None,
        on_late: OnLate | None = None,
    ) -> TimeWindowDefinition[F]:
        """Aggregate, for each record, the records of the time before it.

        There is a window [t - duration, t], both ends inclusive, for each event time t of a record.

        Args:
            duration_ms: how far a window reaches back, in milliseconds or as a timedelta.
            grace_ms: how long after its end a window stays open for late records, likewise.
            name: as for `tumbling_window`.
            on_late: called for each record that is too late for a window that ends with it. It may still be counted in
                later ones.

        Returns:
            The definition of a window, as `tumbling_window` does.

        Raises:
            ConfigurationError: if a time is too short, or `name` is not allowed.
            InvalidOperationError: if `on_late` is no function.

        Example:
            ```python
            last_minute = sdf.sliding_window(timedelta(minutes=1)).agg(mean=Mean("celsius"), n=Count()).current()
            ```
        """
        duration = _length("sliding_window", "duration_ms", duration_ms)
        template = SlidingWindow(
            **_times("sliding_window", grace_ms, on_late),
            duration_ms=duration,
        )
        return TimeWindowDefinition(self, f"sliding_window_{duration}", template, name)

    def session_window(
        self: F,
        inactivity_gap_ms: int | timedelta,
        grace_ms: int | timedelta = 0,
        name: str | None = None,
        on_late: OnLate | None = None,
    ) -> TimeWindowDefinition[F]:
        """Aggregate records that follow each other closely: a session ends where nothing comes for a while.

        Records of a key are in one session if they are at most the gap apart, or connected by others in between. A session is
        [first, last + 1). A record may join two sessions, so aggregations must be able to merge their states.

        Args:
            inactivity_gap_ms: how far apart two records of a session may be, in milliseconds or as a timedelta.
            grace_ms: how long sessions stay open for late records, likewise.
            name: as for `tumbling_window`.
            on_late: called for each record that is too late for a session.

        Returns:
            The definition of a window, as `tumbling_window` does.

        Raises:
            ConfigurationError: if a time is too short, or `name` is not allowed.
            InvalidOperationError: if `on_late` is no function.

        Example:
            ```python
            visits = clicks.session_window(timedelta(minutes=30)).agg(clicks=Count(), pages=Collect("page")).final()
            ```
        """
        gap = _length("session_window", "inactivity_gap_ms", inactivity_gap_ms)
        template = SessionWindow(
            **_times("session_window", grace_ms, on_late),
            gap_ms=gap,
        )
        return TimeWindowDefinition(self, f"session_window_{gap}", template, name)

    def tumbling_count_window(self: F, count: int, name: str | None = None) -> CountWindowDefinition[F]:
        """Aggregate so many records of a key at a time, in the order of their arrival, whatever their event times.

        Start and end of a window are the lowest and the highest event time in it.

        Args:
            count: how many records a window has; at least 2.
            name: as for `tumbling_window`.

        Returns:
            The definition of a window: say what to compute next, and when to emit it.

        Raises:
            ConfigurationError: if the number is too small, or `name` is not allowed.

        Example:
            ```python
            tens = sdf.tumbling_count_window(10).mean().final()
            ```
        """
        size = _count("tumbling_count_window(count=...)", count, 2)
        return CountWindowDefinition(self, "tumbling_count_window", _counted(size, size), name)

    def hopping_count_window(self: F, count: int, step: int, name: str | None = None) -> CountWindowDefinition[F]:
        """Aggregate so many records of a key at a time, in windows that begin after each `step` records.

        Args:
            count: how many records a window has; at least 2.
            step: after how many records the next window begins; at least 1 and at most `count`.
            name: as for `tumbling_window`.

        Returns:
            The definition of a window: say what to compute next, and when to emit it.

        Raises:
            ConfigurationError: if a number is too small or too large, or `name` is not allowed.

        Example:
            ```python
            sdf.hopping_count_window(count=10, step=5).max().final()
            ```
        """
        size = _count("hopping_count_window(count=...)", count, 2)
        every = _count("hopping_count_window(step=...)", step, 1)
        if every > size:
            raise ArgumentValueError(
                f"hopping_count_window(step={every}): it must be at most the count of {size}, or records would be in no "
                "window"
            )
        return CountWindowDefinition(self, "hopping_count_window", _counted(size, every), name)

    def sliding_count_window(self: F, count: int, name: str | None = None) -> CountWindowDefinition[F]:
        """Aggregate the last so many records of a key.

        Args:
            count: how many records a window has; at least 2.
            name: as for `tumbling_window`.

        Returns:
            The definition of a window: say what to compute next, and when to emit it.

        Raises:
            ConfigurationError: if the number is too small, or `name` is not allowed.

        Example:
            ```python
            sdf.sliding_count_window(3).sum().final()
            ```
        """
        size = _count("sliding_count_window(count=...)", count, 2)
        return CountWindowDefinition(self, "sliding_count_window", _counted(size, 1), name)

    def _windowed(self: F, store: str, operator: WindowOperator) -> F:
        """Add a window.

        Raises:
            InvalidOperationError: if the dataframe has such a window already.
        """
        store = ".".join((store, *self._groups))
        topology = self._builder.build()
        for node in topology.nodes:
            other = node.operator
            if (
                isinstance(other, WindowOperator)
                and other.store.name == store
                and topology.scope(node) == self.stream_id
            ):
                raise InvalidOperationError(
                    f"this dataframe has a window that keeps its state in the store {store!r} already, defined at "
                    f"{node.location}: use the frame that it returned, or give one of the two a name, such as "
                    "tumbling_window(..., name='...')"
                )
        kind = self._builder.store_kind(self._sources)
        spec = StoreSpec(store, transaction=TimedTransaction)
        if kind is not None:
            spec = StoreSpec(store, kind, TimedTransaction)
        return self._new(replace(operator, store=spec))


_NO_STORE = StoreSpec()
_NO_AGGREGATION = Aggregation((), (), single=False)


def _fixed(
    method: str,
    duration: int,
    step: int,
    grace_ms: int | timedelta,
    on_late: OnLate | None,
    before_update: Trigger | None,
    after_update: Trigger | None,
) -> FixedWindow:
    for name, trigger in (("before_update", before_update), ("after_update", after_update)):
        if trigger is not None:
            require_callable(f"{method}({name}=...)", trigger)
    return FixedWindow(
        **_times(method, grace_ms, on_late),
        duration_ms=duration,
        step_ms=step,
        before_update=before_update,
        after_update=after_update,
    )


def _counted(count: int, step: int) -> CountWindow:
    return CountWindow(_NO_STORE, _NO_AGGREGATION, final=True, count=count, step=step)


def _times(method: str, grace_ms: int | timedelta, on_late: OnLate | None) -> dict[str, Any]:
    if on_late is not None:
        require_callable(f"{method}(on_late=...)", on_late)
    return {
        "store": _NO_STORE,
        "aggregation": _NO_AGGREGATION,
        "final": True,
        "grace_ms": milliseconds(f"{method}(grace_ms=...)", grace_ms),
        "on_late": on_late,
    }


def _length(method: str, argument: str, given: int | timedelta) -> int:
    """Return the length of a window in milliseconds; one that may be meant as seconds is warned of."""
    length = milliseconds(f"{method}({argument}=...)", given, least=1)
    if length < _SHORT_MS and not isinstance(given, timedelta):
        logger.warning(
            "%s(%s=%d) defined at %s lasts %d milliseconds, since durations are in milliseconds: if seconds are meant, write "
            "%s=timedelta(seconds=%d); write timedelta(milliseconds=%d) if not",
            *(method, argument, length, caller(), length, argument, length, length),
        )
    return length


def _count(what: str, given: int, least: int) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise argument_error(
            f"{what} is a number of records, at least {least}, got {given!r}",
            of_type=isinstance(given, int) and not isinstance(given, bool),
        )
    return given
