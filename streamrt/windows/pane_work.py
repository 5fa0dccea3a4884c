"""The work of windows with triggers, for a record and for a timer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamrt.errors import StateError
from streamrt.operators.late import LateRecords
from streamrt.records import Headers
from streamrt.state.layout import LATEST_EXPIRY, pane_prefix
from streamrt.state.transactions.panes import TRIGGER, WINDOW, PaneTransaction
from streamrt.state.transactions.timers import Timers
from streamrt.topology import Metrics, RecordHandler
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.assigners import MergingWindowAssigner, WindowAssigner, merged_groups
from streamrt.windows.evictors import Evictor
from streamrt.windows.functions import ProcessWindowFunction, WindowFunction, checked_results, function_name
from streamrt.windows.pane_contexts import (
    EvictorContext,
    MergeContext,
    TriggerContext,
    WindowCall,
    WindowContext,
    watermark_of,
)
from streamrt.windows.panes import TRIGGER_STATE, WINDOW_STATE, Contents, Pane
from streamrt.windows.triggers import Trigger, TriggerResult, clears_state
from streamrt.windows.window import END_OF_TIME, Window

__all__ = ["Output", "PaneRules", "Panes"]

Output = tuple[Any, int]
"""Value and event time of a result."""


@dataclass(frozen=True)
class PaneRules:
    """The rules of windows with a trigger.

    Attributes:
        aggregation: the aggregation; None for a window function of elements.
        assigner: the windows.
        trigger: when they are emitted.
        grace_ms: time after its end during which a window stays open for late records, in milliseconds.
        evictor: which elements count.
        function: the window function; None: the aggregate is emitted with start and end.
    """

    aggregation: Aggregation | None
    assigner: WindowAssigner
    trigger: Trigger
    grace_ms: int = 0
    evictor: Evictor | None = None
    function: WindowFunction | None = None

    @property
    def keeps_elements(self) -> bool:
        """Whether the elements of windows are kept, one by one."""
        return self.aggregation is None or bool(self.aggregation.collectors)

    @property
    def by_event_time(self) -> bool:
        """Whether windows end by event time."""
        return self.assigner.time == "event"

    @property
    def tags(self) -> tuple[str, ...]:
        """The side outputs of the window function."""
        return self.function.outputs if isinstance(self.function, ProcessWindowFunction) else ()


class Panes:
    """Updates, emits and deletes panes. Results are returned when all changes of a record or a timer are made.

    Args:
        operator: the rules.
        late: what late records are reported to.
        outputs: what takes the records of the side outputs of the window function, by tag; None where nothing reads them.
        metrics: the metrics of triggers, window functions and evictors.
    """

    def __init__(
        self,
        operator: PaneRules,
        late: LateRecords,
        outputs: Mapping[str, RecordHandler | None],
        metrics: Metrics,
    ) -> None:
        self._metrics = metrics
        self._assigner = operator.assigner
        self._merging = operator.assigner if isinstance(operator.assigner, MergingWindowAssigner) else None
        self._by_event_time = operator.by_event_time
        self._trigger = operator.trigger
        self._tidy = clears_state(operator.trigger)
        self._trigger_name = type(operator.trigger).__name__
        self._grace = operator.grace_ms
        merges = self._merging is not None
        self._plan = None if operator.aggregation is None else operator.aggregation.plan(by_arrival=merges)
        self._keeps = operator.keeps_elements
        self._contents = Contents(self._plan, keeps=self._keeps, stays=self._merging is not None)
        self._evictor = operator.evictor
        self._late = late
        self._call: WindowCall | None = None
        function = operator.function
        if function is not None:
            name = function_name(function)
            own = isinstance(function, ProcessWindowFunction)
            call: Any = function.process if isinstance(function, ProcessWindowFunction) else function
            has_clear = own and type(function).clear is not ProcessWindowFunction.clear  # type: ignore[union-attr]
            clear: Any = function.clear if has_clear else None  # type: ignore[union-attr]
            self._call = WindowCall(name, call, clear, self._merging is not None, outputs, metrics)

    # -- Records -------------------------------------------------------------------------------------------------------

    def add(
        self, transaction: PaneTransaction, value: Any, key: Any, timestamp: int, headers: Headers | None
    ) -> list[Output]:
        """Add a record to its windows; return what is emitted."""
        prefix = transaction.prefix_of(key)
        windows = [*self._assigner.assign_windows(value, timestamp, transaction.now())]
        for window in windows:
            self._check_window(window)
        watermark = watermark_of(transaction)
        if self._merging is not None:
            return self._add_merging(transaction, prefix, windows, value, key, timestamp, headers)
        contents = self._contents
        value_in, element = contents.input_of(value), contents.element_of(transaction, timestamp, value)
        added: list[tuple[Window, Pane | None, Any]] = []
        # All aggregates before any change: an exception leaves the windows unchanged.
        for window in windows:
            if self._is_late(window, watermark):
                self._report_late(window, value, key, timestamp, watermark)
                continue
            pane = contents.read(transaction, prefix, window)
            added.append((window, pane, contents.next_state(transaction, pane, value_in, timestamp)))
        if not added:
            self._leave_out(windows, value, key, timestamp, headers, watermark)
            return []
        outputs: list[Output] = []
        for window, known, state in added:
            if known is None:
                self._register_end(transaction, prefix, window)
            pane = Pane(lists=[]) if known is None else known
            outputs += self._add_element(transaction, prefix, window, pane, state, element, value, key, timestamp)
        return outputs

    def _add_merging(
        self,
        transaction: PaneTransaction,
        prefix: bytes,
        windows: Sequence[Window],
        value: Any,
        key: Any,
        timestamp: int,
        headers: Headers | None,
    ) -> list[Output]:
        """Add a record to windows that merge; return what is emitted."""
        contents, watermark = self._contents, watermark_of(transaction)
        value_in, element = contents.input_of(value), contents.element_of(transaction, timestamp, value)
        outputs: list[Output] = []
        counted = False
        for window in windows:
            opened = [Window(*each) for each in transaction.opened(prefix)]
            found = self._merge_window(transaction, prefix, opened, window, timestamp)
            if found not in opened:
                if self._is_late(found, watermark):
                    self._report_late(found, value, key, timestamp, watermark)
                    continue
                opened.append(found)
            counted = True
            pane = contents.read(transaction, prefix, found)
            if pane is None:
                pane = Pane(lists=[])
                self._register_end(transaction, prefix, found)
            state = contents.next_state(transaction, pane, value_in, timestamp)
            transaction.set_opened(prefix, [[each.start, each.end] for each in sorted(opened)])
            outputs += self._add_element(transaction, prefix, found, pane, state, element, value, key, timestamp)
        if not counted:
            self._leave_out(windows, value, key, timestamp, headers, watermark)
        return outputs

    def _merge_window(
        self, transaction: PaneTransaction, prefix: bytes, opened: list[Window], window: Window, timestamp: int
    ) -> Window:
        """Merge a new window with those that are open, which are changed; return the window that the new one became."""
        assigner = self._merging
        if assigner is None:
            raise TypeError("these windows do not merge")
        became = window
        for result, others, concerned in merged_groups(assigner, tuple(opened), window):
            self._check_window(result)
            if concerned:
                became = result
            if others == [result]:
                # The new window is inside of another one.
                continue
            if self._is_late(result, watermark_of(transaction)):
                raise StateError(
                    f"{type(assigner).__name__} has merged windows to {result.start} to {result.end}, which is over already: "
                    "a merged window must not end before those that it replaces"
                )
            self._merge_panes(transaction, prefix, result, others, timestamp)
            opened[:] = [each for each in opened if each not in others]
            opened.append(result)
            # Stored before the next step: panes and open windows belong together.
            transaction.set_opened(prefix, [[each.start, each.end] for each in sorted(opened)])
        return became

    def _merge_panes(
        self, transaction: PaneTransaction, prefix: bytes, result: Window, others: Sequence[Window], timestamp: int
    ) -> None:
        contents = self._contents
        panes = [contents.read(transaction, prefix, each) for each in others]
        merged = contents.merged(transaction, panes)
        context = MergeContext(transaction, self._metrics, prefix, result, timestamp, tuple(others))
        try:
            self._trigger.on_merge(result, context)
        finally:
            context._end_moment()
        for window, pane in zip(others, panes, strict=True):
            if window == result:
                merged.used |= pane.used & TRIGGER_STATE if pane is not None else 0
                continue
            self._clear_trigger(transaction, prefix, window, timestamp, pane)
            end = self._end_of(window)
            if end < LATEST_EXPIRY:
                self._timers_of(transaction).delete(pane_prefix(prefix, TRIGGER, window.start, window.end), end)
            transaction.set_content(prefix, window.start, window.end, None)
        merged.used |= TRIGGER_STATE if context.used else 0
        self._register_end(transaction, prefix, result)
        contents.write(transaction, prefix, result, merged)

    def _add_element(
        self,
        transaction: PaneTransaction,
        prefix: bytes,
        window: Window,
        pane: Pane,
        state: Any,
        element: bytes | None,
        value: Any,
        key: Any,
        timestamp: int,
    ) -> list[Output]:
        """Ask the trigger about a record, and add it; return what is emitted."""
        context = TriggerContext(transaction, self._metrics, prefix, window, timestamp)
        try:
            result = self._trigger.on_element(value, timestamp, window, context)
        finally:
            context._end_moment()
        if context.used:
            pane.used |= TRIGGER_STATE
        self._contents.add(transaction, prefix, pane, state, timestamp, element)
        fires = self._check_result(result, "on_element").is_fire
        if fires and self._call is not None:
            # The function may raise: the record is counted all the same.
            self._contents.write(transaction, prefix, window, pane)
        outputs = self._emit_window(transaction, prefix, key, window, pane, timestamp) if fires else []
        if result.is_purge:
            self._contents.purge(transaction, prefix, pane)
        self._contents.write(transaction, prefix, window, pane)
        return outputs

    # -- Timers --------------------------------------------------------------------------------------------------------

    def on_event_time(
        self, transaction: PaneTransaction, prefix: bytes, key: Any, window: Window, time: int
    ) -> list[Output]:
        """Let the trigger decide at an event time, and delete a window that is over; return what is emitted."""
        end = self._end_of(window)
        if self._by_event_time and time > end:
            # The trigger has left it behind.
            return []
        over = self._by_event_time and time == end
        return self._on_timer(transaction, prefix, key, window, time, self._trigger.on_event_time, over=over)

    def on_processing_time(
        self, transaction: PaneTransaction, prefix: bytes, key: Any, window: Window, time: int
    ) -> list[Output]:
        """The same for processing time."""
        end = self._end_of(window)
        if end <= watermark_of(transaction) if self._by_event_time else time > end:
            return []
        over = not self._by_event_time and time == end
        return self._on_timer(transaction, prefix, key, window, time, self._trigger.on_processing_time, over=over)

    def _on_timer(
        self,
        transaction: PaneTransaction,
        prefix: bytes,
        key: Any,
        window: Window,
        time: int,
        ask: Callable[[int, Window, TriggerContext], TriggerResult],
        *,
        over: bool,
    ) -> list[Output]:
        contents = self._contents
        known = contents.read(transaction, prefix, window)
        if known is None and self._merging is not None:
            # Windows that merge always have a pane.
            return []
        pane = Pane(lists=[]) if known is None else known
        context = TriggerContext(transaction, self._metrics, prefix, window, time)
        try:
            result = self._check_result(ask(time, window, context), ask.__name__)
        finally:
            context._end_moment()
        before = pane.used
        if context.used:
            pane.used |= TRIGGER_STATE
        outputs = self._emit_window(transaction, prefix, key, window, pane, time) if result.is_fire else []
        if over:
            self._delete_window(transaction, prefix, key, window, pane, time)
        elif result.is_purge or pane.used != before or (result.is_fire and self._evictor is not None):
            if result.is_purge:
                contents.purge(transaction, prefix, pane)
            contents.write(transaction, prefix, window, pane)
        return outputs

    def _delete_window(
        self, transaction: PaneTransaction, prefix: bytes, key: Any, window: Window, pane: Pane, time: int
    ) -> None:
        """Delete a window that is over, with all that belongs to it."""
        call = self._call
        if call is not None and call.clear is not None:
            context = WindowContext(call, transaction, prefix, key, window, _result_timestamp(window, pane, time))
            try:
                call.clear(context)
            finally:
                context._end_moment()
            pane.used |= WINDOW_STATE if context.used else 0
        if pane.used & WINDOW_STATE:
            transaction.clear_pane(pane_prefix(prefix, WINDOW, window.start, window.end))
        self._clear_trigger(transaction, prefix, window, time, pane)
        self._contents.delete(transaction, prefix, window, pane)
        if self._merging is not None:
            rest = [each for each in transaction.opened(prefix) if each != [window.start, window.end]]
            transaction.set_opened(prefix, rest)

    def _clear_trigger(
        self, transaction: PaneTransaction, prefix: bytes, window: Window, time: int, pane: Pane | None
    ) -> None:
        """Delete timers and state of the trigger."""
        context = TriggerContext(transaction, self._metrics, prefix, window, time)
        try:
            self._trigger.clear(window, context)
        finally:
            context._end_moment()
        if not self._tidy and (context.used or (pane is not None and pane.used & TRIGGER_STATE)):
            transaction.clear_pane(pane_prefix(prefix, TRIGGER, window.start, window.end))

    # -- Results -------------------------------------------------------------------------------------------------------

    def _emit_window(
        self, transaction: PaneTransaction, prefix: bytes, key: Any, window: Window, pane: Pane, time: int
    ) -> list[Output]:
        """Return the results of a window that fires; nothing if it has no records."""
        if not pane.count:
            return []
        timestamp = _result_timestamp(window, pane, time)
        evictor, eviction, values = self._evictor, None, []
        if evictor is not None:
            moment = EvictorContext(transaction, self._metrics)
            eviction = self._contents.evicted(evictor, moment, transaction, prefix, window, pane)
            values = [value for _, value in eviction.elements]
        elif self._keeps:
            values = [value for _, value in self._contents.elements(transaction, prefix, pane)]
        results = self._make_results(transaction, prefix, key, window, pane, values, timestamp)
        if eviction is not None:
            self._contents.keep(transaction, prefix, pane, eviction)
            moment._end_moment()
        return [(result, timestamp) for result in results]

    def _make_results(
        self,
        transaction: PaneTransaction,
        prefix: bytes,
        key: Any,
        window: Window,
        pane: Pane,
        values: list[Any],
        timestamp: int,
    ) -> list[Any]:
        plan, call, packing = self._plan, self._call, transaction.packing
        if call is None:
            if plan is None:
                raise TypeError("a window without an aggregation needs a function")
            start, end = window.start, window.end
            if end == END_OF_TIME:
                start, end = pane.low or 0, pane.high or 0
            return [plan.output(start, end, pane.state, values, packing)]
        elements = values if plan is None else [plan.aggregate(pane.state, values, packing)]
        context = WindowContext(call, transaction, prefix, key, window, timestamp)
        try:
            return checked_results(call.call(key, context, elements), call.function)
        finally:
            context._end_moment()
            pane.used |= WINDOW_STATE if context.used else 0

    # -- Ends ----------------------------------------------------------------------------------------------------------

    def _end_of(self, window: Window) -> int:
        """Return when a window is deleted."""
        return window.max_timestamp + self._grace

    def _is_late(self, window: Window, watermark: int) -> bool:
        return self._by_event_time and window.max_timestamp + self._grace <= watermark

    def _timers_of(self, transaction: PaneTransaction) -> Timers:
        return transaction.event_timers if self._by_event_time else transaction.processing_timers

    def _register_end(self, transaction: PaneTransaction, prefix: bytes, window: Window) -> None:
        end = self._end_of(window)
        if end < LATEST_EXPIRY:
            self._timers_of(transaction).register(pane_prefix(prefix, TRIGGER, window.start, window.end), end)

    def _report_late(self, window: Window, value: Any, key: Any, timestamp: int, watermark: int) -> None:
        self._late(value, key, timestamp, watermark + 1 - self._grace - timestamp, window.start, window.end)

    def _leave_out(
        self,
        windows: Sequence[Window],
        value: Any,
        key: Any,
        timestamp: int,
        headers: Headers | None,
        watermark: int,
    ) -> None:
        if windows or (self._by_event_time and timestamp + self._grace <= watermark):
            self._late.leave_out(value, key, timestamp, headers)

    def _check_window(self, window: Any) -> None:
        if not isinstance(window, Window) or not 0 <= window.start < window.end <= END_OF_TIME:
            raise StateError(
                f"{type(self._assigner).__name__} has returned {window!r}: a window must be a Window with a start of 0 or "
                "more and a later end"
            )

    def _check_result(self, result: Any, method: str) -> TriggerResult:
        if not isinstance(result, TriggerResult):
            raise TypeError(
                f"{self._trigger_name}.{method} must return a TriggerResult, such as TriggerResult.CONTINUE, but returned "
                f"{type(result).__name__}"
            )
        return result


def _result_timestamp(window: Window, pane: Pane, time: int) -> int:
    """Return the timestamp of results: the start of the window; the lowest event time in one that never ends."""
    if window.end < END_OF_TIME:
        return window.start
    return time if pane.low is None else pane.low
