"""Windows over a whole stream, in two phases: `agg_all` of a window definition."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final, Generic, TypeVar

from streamrt.dataframe.branch import Branch
from streamrt.dataframe.clocks import Clock, WindowClock
from streamrt.dataframe.unfinished import NOT_EMITTED, AddWindow, refuse_use_as_frame
from streamrt.errors import ArgumentValueError, InvalidOperationError
from streamrt.operators.group_by import Repartition
from streamrt.relations.partial_aggregate import WholeKey
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics.durations import milliseconds
from streamrt.topology import WhenAllIdle
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.closing import TimeWindowOperator
from streamrt.windows.fixed import FixedWindow
from streamrt.windows.merged_window import MergedWindow
from streamrt.windows.partial_window import PartialWindow
from streamrt.windows.parts import make_parts_plan

__all__ = ["WholeWindow", "add_whole_window", "make_partial_window"]

_EVERY: Final = timedelta(seconds=1)

# A dataframe.
F = TypeVar("F")


@refuse_use_as_frame(
    NOT_EMITTED,
    dict.fromkeys(
        ("process", "trigger"),
        "it is merged from the parts of all partitions when it closes; call .final() or .current(), and continue with the "
        "results",
    ),
    "a window with agg_all()",
)
class WholeWindow(Generic[F]):
    """A window over all records of a stream, with its aggregations. Next, say when to emit it."""

    def __init__(self, add: AddWindow[F], store: str, parts: PartialWindow) -> None:
        self._add_window = add
        self._store = store
        self._parts = parts

    def final(
        self,
        closing_strategy: Clock | None = None,
        idle_timeout_ms: int | timedelta | None = None,
        when_all_idle: WhenAllIdle | None = None,
    ) -> F:
        """Emit each window once: when event time of the whole stream has passed its end plus the grace period.

        The value is `{"start": ..., "end": ..., <name>: ...}`, with the key "all", the start of the window as timestamp, and
        no headers. A record is late if its partition knows that the window is closed; `side_output("late")` of the result
        has such records.

        Args:
            closing_strategy: the clock: "watermark", the default, or a `WatermarkStrategy`. The clock of a key or of a
                partition is refused: it says nothing about the others.
            idle_timeout_ms: see `TimeWindow.final`.
            when_all_idle: see `TimeWindow.final`.

        Returns:
            A new frame.

        Raises:
            ConfigurationError: if the strategy or the timeout is not allowed.
            InvalidOperationError: if the dataframe already has the same window with `agg_all`.

        Example:
            ```python
            highest = bids.tumbling_window(10_000).agg_all(price=Max("price")).final(idle_timeout_ms=2_000)
            ```
        """
        clock = _make_clock(closing_strategy, idle_timeout_ms, when_all_idle)
        return self._add_window(self._store, replace(self._parts, final=True), clock)

    def current(
        self,
        every: int | timedelta = _EVERY,
        closing_strategy: Clock | None = None,
        idle_timeout_ms: int | timedelta | None = None,
        when_all_idle: WhenAllIdle | None = None,
    ) -> F:
        """Emit the results of open windows again and again, while they change.

        Each partition sends what it has counted in a window so far, if it has changed, and the result is emitted for each of
        these parts. Values are as for `final()`.

        Args:
            every: how often a partition sends its parts, in milliseconds or as a timedelta, by the wall clock.
            closing_strategy: the clock that decides which records are late; see `final`.
            idle_timeout_ms: see `final`.
            when_all_idle: see `final`.

        Returns:
            A new frame.

        Raises:
            ConfigurationError: as for `final`, and if `every` is negative.
            InvalidOperationError: as for `final`.
        """
        clock = _make_clock(closing_strategy, idle_timeout_ms, when_all_idle)
        every_ms = milliseconds("current(every=...)", every)
        return self._add_window(self._store, replace(self._parts, final=False, every_ms=every_ms), clock)


def make_partial_window(template: TimeWindowOperator, aggregation: Aggregation) -> PartialWindow:
    """Return the first phase of a window.

    Args:
        template: the window.
        aggregation: its aggregations.

    Raises:
        InvalidOperationError: if an aggregation, or the window, cannot be merged from the parts of partitions.
    """
    if not isinstance(template, FixedWindow):
        raise InvalidOperationError(
            f"agg_all() needs tumbling or hopping windows, whose bounds are the same in all partitions, and not a "
            f"{type(template).__name__}: a session, or what is near a record, may consist of records of several partitions; "
            'group by a function that returns the same key for all records, such as group_by(lambda value: "all", '
            'name="all"), and use agg()'
        )
    for name in ("before_update", "after_update"):
        if getattr(template, name) is not None:
            raise ArgumentValueError(
                f"{name}=... has no effect with agg_all(): no partition sees the aggregate of the whole window"
            )
    make_parts_plan(aggregation)
    return PartialWindow(
        store=template.store,
        aggregation=aggregation,
        final=True,
        grace_ms=template.grace_ms,
        on_late=template.on_late,
        duration_ms=template.duration_ms,
        step_ms=template.step_ms,
        offset_ms=template.offset_ms,
    )


def add_whole_window(branch: Branch, name: str, parts: PartialWindow, clock: WindowClock) -> Branch:
    """Add both phases of a window, and return the position of its results.

    Args:
        branch: the position of the records.
        name: name of the window, for stores and for the topic in between.
        parts: the first phase.
        clock: the clock of the window.

    Raises:
        ConfigurationError: if the clock is not allowed.
        InvalidOperationError: if the dataframe already has such a window with the same name.
    """
    what, cure = "a window with agg_all()", "tumbling_window(..., name='...')"
    # The records of a key need not be together.
    branch = replace(branch, keyed=True)
    parts = replace(parts, closing=clock.closing(branch))
    store = branch.store(branch.own_store(f"{name}_part", what, cure), TimedTransaction)
    timer = None
    if not parts.final:
        timer = branch.store(branch.own_store(f"{name}_timer", what, cure), TimedTransaction)
    sending = branch.add(replace(parts, store=store, timer=timer))
    topic = branch.exact_topic(name, key_deserializer="str", key_serializer="str")
    merging = sending.exchange(Repartition(topic, WholeKey(), name), name)
    store = merging.store(merging.own_store(name, what, cure), TimedTransaction)
    return merging.add(replace(MergedWindow.of(parts), store=store)).with_sides_of(sending)


def _make_clock(
    strategy: Clock | None, idle_timeout_ms: int | timedelta | None, when_all_idle: WhenAllIdle | None
) -> WindowClock:
    if strategy in ("key", "partition"):
        raise ArgumentValueError(
            f"closing_strategy={strategy!r} is not for windows of agg_all(), which wait for all partitions: use "
            "'watermark', the default, or a WatermarkStrategy"
        )
    return WindowClock(strategy, idle_timeout_ms, when_all_idle, default="watermark")
