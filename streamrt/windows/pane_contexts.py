"""The contexts of triggers, window functions and evictors: facts about the call, and actions."""

from collections.abc import Callable, Mapping
from typing import Any

from streamrt.errors import StateError
from streamrt.operators.functions import checked_timer_time, side_output_of
from streamrt.state import State
from streamrt.state.access.keyed_state import KeyedState
from streamrt.state.base import BEFORE_ALL
from streamrt.state.layout import LATEST_EXPIRY, pane_prefix
from streamrt.state.transactions.panes import TRIGGER, WINDOW, PaneTransaction
from streamrt.topology import Metrics, RecordHandler
from streamrt.windows.window import END_OF_TIME, Window

__all__ = ["EvictorContext", "MergeContext", "TriggerContext", "WindowContext", "watermark_of"]


def watermark_of(transaction: PaneTransaction) -> int:
    """Return the watermark, in milliseconds: no later record is older, except late ones."""
    time = transaction.event_time
    return BEFORE_ALL if time == BEFORE_ALL else time - 1


class _Moment:
    """The common part of all contexts; valid during one call."""

    __slots__ = ("_metrics", "_states", "_transaction")

    def __init__(self, transaction: PaneTransaction, metrics: Metrics) -> None:
        self._transaction: PaneTransaction | None = transaction
        self._metrics = metrics
        # They end with the call.
        self._states: list[KeyedState] = []

    @property
    def metrics(self) -> Metrics:
        """Counters, gauges and distributions of the window, by name; see `Context.metrics` of process functions.

        Example:
            ```python
            ctx.metrics.counter("early").inc()
            ```
        """
        return self._metrics

    @property
    def current_watermark(self) -> int:
        """Event time in milliseconds: windows that end up to it are over. -(1 << 63) before the first record."""
        return watermark_of(self._running_transaction())

    @property
    def current_processing_time(self) -> int:
        """The wall clock, in milliseconds since the Unix epoch; the clock of the test driver in tests."""
        return self._running_transaction().now()

    def _running_transaction(self) -> PaneTransaction:
        transaction = self._transaction
        if transaction is None:
            raise StateError(
                f"a {type(self).__name__} was used after its call: it is valid only during the call that it was passed to; "
                "do not keep it"
            )
        return transaction

    def _give_state(self, state: KeyedState) -> State:
        self._states.append(state)
        return state

    def _end_moment(self) -> None:
        self._transaction = None
        for state in self._states:
            state.end()


class EvictorContext(_Moment):
    """The context of a call of an evictor."""

    __slots__ = ()


class TriggerContext(_Moment):
    """The context of a call of a trigger, for one window of one key; it is valid during this call."""

    __slots__ = ("_pane", "_prefix", "_state", "_timestamp", "_window", "used")

    def __init__(
        self, transaction: PaneTransaction, metrics: Metrics, prefix: bytes, window: Window, timestamp: int
    ) -> None:
        super().__init__(transaction, metrics)
        self._prefix = prefix
        self._window = window
        self._timestamp = timestamp
        self._pane: bytes | None = None
        self._state: State | None = None
        # Whether the state was used.
        self.used = False

    @property
    def state(self) -> State:
        """The trigger's state of the key and the window; it is deleted when the window is over."""
        transaction = self._running_transaction()
        self.used = True
        state = self._state
        if state is None:
            state = self._state = self._give_state(transaction.pane_state(self._pane_prefix(), self._timestamp))
        return state

    def register_event_time_timer(self, time: int) -> None:
        """Have `on_event_time` called when the watermark reaches a time; once for each window and time.

        Args:
            time: event time in milliseconds, 0 or more. A time that the watermark has passed is due at once. The end of a
                window that never ends does not come.

        Raises:
            InvalidOperationError: if the time is not an int, or is below 0.
        """
        if checked_timer_time(time, END_OF_TIME) < LATEST_EXPIRY:
            self._running_transaction().event_timers.register(self._pane_prefix(), time)

    def register_processing_time_timer(self, time: int) -> None:
        """Have `on_processing_time` called when the wall clock has passed a time; once for each window and time.

        Args:
            time: milliseconds since the Unix epoch.

        Raises:
            InvalidOperationError: if the time is not an int, or is below 0.
        """
        if checked_timer_time(time, END_OF_TIME) < LATEST_EXPIRY:
            self._running_transaction().processing_timers.register(self._pane_prefix(), time)

    def delete_event_time_timer(self, time: int) -> None:
        """Delete a timer of the window; a missing one is not an error."""
        if checked_timer_time(time, END_OF_TIME) < LATEST_EXPIRY:
            self._running_transaction().event_timers.delete(self._pane_prefix(), time)

    def delete_processing_time_timer(self, time: int) -> None:
        """Delete a timer of the window; a missing one is not an error."""
        if checked_timer_time(time, END_OF_TIME) < LATEST_EXPIRY:
            self._running_transaction().processing_timers.delete(self._pane_prefix(), time)

    def _pane_prefix(self) -> bytes:
        pane = self._pane
        if pane is None:
            window = self._window
            pane = self._pane = pane_prefix(self._prefix, TRIGGER, window.start, window.end)
        return pane


class MergeContext(TriggerContext):
    """The context of `on_merge`: that of the merged window, with the states of the windows that it replaces.

    Attributes:
        merged: the windows that were merged.
    """

    __slots__ = ("merged",)

    def __init__(
        self,
        transaction: PaneTransaction,
        metrics: Metrics,
        prefix: bytes,
        window: Window,
        timestamp: int,
        merged: tuple[Window, ...],
    ) -> None:
        super().__init__(transaction, metrics, prefix, window, timestamp)
        self.merged = merged

    @property
    def merged_states(self) -> list[State]:
        """The trigger's states of the windows that were merged; they are deleted after this call."""
        transaction = self._running_transaction()
        return [
            self._give_state(
                transaction.pane_state(pane_prefix(self._prefix, TRIGGER, window.start, window.end), self._timestamp)
            )
            for window in self.merged
            if window != self._window
        ]


class WindowContext(_Moment):
    """The context of a call of a window function; it is valid during this call.

    Attributes:
        window: the window.
    """

    __slots__ = ("_call", "_key", "_prefix", "_timestamp", "used", "window")

    def __init__(
        self, call: "WindowCall", transaction: PaneTransaction, prefix: bytes, key: Any, window: Window, timestamp: int
    ) -> None:
        super().__init__(transaction, call.metrics)
        self._call = call
        self._prefix = prefix
        self._key = key
        self.window = window
        self._timestamp = timestamp
        # Whether the state of the window was used.
        self.used = False

    @property
    def window_state(self) -> State:
        """The state of the key and the window; it is deleted when the window is over.

        Raises:
            StateError: if windows may merge.
        """
        transaction = self._running_transaction()
        if self._call.merging:
            raise StateError(
                f"{self._call.function} asked for the state of a window, but its windows merge, and their states cannot: use "
                "ctx.global_state"
            )
        self.used = True
        window = self.window
        pane = pane_prefix(self._prefix, WINDOW, window.start, window.end)
        return self._give_state(transaction.pane_state(pane, self._timestamp))

    @property
    def global_state(self) -> State:
        """The state of the key, for all windows."""
        return self._give_state(self._running_transaction().state_at(self._prefix, self._timestamp))

    def output(self, tag: str, value: Any) -> None:
        """Put a value out to a side output, with the key, and the timestamp that results of the window have.

        Args:
            tag: one of the `outputs` of the function.
            value: the value.

        Raises:
            InvalidOperationError: if the function does not declare the tag.
        """
        self._running_transaction()
        handler = side_output_of(self._call.outputs, tag, self._call.function)
        if handler is not None:
            handler(value, self._key, self._timestamp, None)


class WindowCall:
    """The common part of all calls of a window function.

    Args:
        function: its name, for errors.
        call: calls it with key, context and elements.
        clear: calls its method `clear`; None if it has none.
        merging: whether windows may merge.
        outputs: what takes the records of its side outputs, by tag; None where nothing reads them.
        metrics: the metrics of the window.
    """

    def __init__(
        self,
        function: str,
        call: Callable[[Any, WindowContext, Any], Any],
        clear: Callable[[WindowContext], None] | None,
        merging: bool,
        outputs: Mapping[str, RecordHandler | None],
        metrics: Metrics,
    ) -> None:
        self.function = function
        self.call = call
        self.clear = clear
        self.merging = merging
        self.outputs = outputs
        self.metrics = metrics
