"""The context of a call of a process function: facts about the call, and actions."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from streamrt.errors import InvalidOperationError, StateError
from streamrt.operators.functions import checked_timer_time, side_output_of
from streamrt.operators.metadata import checked_timestamp
from streamrt.records import Headers
from streamrt.state import State
from streamrt.state.access.keyed_state import KeyedState
from streamrt.state.base import BEFORE_ALL
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.state.transactions.timers import Timers
from streamrt.topology import Metrics, RecordHandler, TaskAccess

__all__ = ["AFTER_ALL", "BEFORE_ALL", "ENDED", "Call", "Context", "TaskContext", "TimeDomain", "TimerContext"]

AFTER_ALL: Final = (1 << 63) - 1
"""The watermark at the end of a bounded run."""


class _Ended(enum.Enum):
    ENDED = enum.auto()


ENDED: Final = _Ended.ENDED
"""Stands for the key of a context between two calls."""


class TimeDomain(enum.Enum):
    """The kind of time that a timer waits for."""

    EVENT_TIME = "event time"
    PROCESSING_TIME = "processing time"


class TaskContext:
    """The view that a process function has of its task.

    One function object works for all tasks of its process, one after the other. So `topic` and `partition` are those of the
    task that is at work at the moment: in `open`, the first one. A function that keeps the context can ask in each call.

    Args:
        name: name of its store.
        topics: names of the topics that its frame reads.
        access: access to the task.
    """

    __slots__ = ("_access", "name", "topics")

    def __init__(self, name: str, topics: tuple[str, ...], access: TaskAccess) -> None:
        self.name = name
        self.topics = topics
        self._access = access

    @property
    def topic(self) -> str:
        """The topic of the task at work; the names of merged ones, joined by `--`."""
        return self._access.task().stream

    @property
    def partition(self) -> int:
        """The partition of the task at work."""
        return self._access.task().partition

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic."""
        return self._access.partitions()

    @property
    def metrics(self) -> Metrics:
        """Counters, gauges and distributions of the function; see `Context.metrics`."""
        return self._access.metrics


@dataclass
class Call:
    """The common part of all calls of a process function.

    Attributes:
        function: name of the function, for errors.
        delay_ms: how much later than its time a timer of event time is due.
        has_timers: whether the function defines `on_timer`.
        outputs: what takes the records of its side outputs, by tag; None where nothing reads them.
        metrics: the metrics of the function.
        at_end: whether the inputs of a bounded run have ended.
        registered: number of timers of event time that were registered.
    """

    function: str
    delay_ms: int
    has_timers: bool
    outputs: Mapping[str, RecordHandler | None]
    metrics: Metrics
    at_end: bool = False
    registered: int = 0


class Context:
    """The context of one call of a process function; it is valid during this call.

    The object serves one call after the other: between two calls, it refuses to be used. State and handles are those of one
    call, and refuse to be used after it.

    Attributes:
        key: the key of the record, or of the timer.
        timestamp: event time of the record in milliseconds, or the time of the timer.
        headers: the headers of the record; None for a timer.
    """

    __slots__ = ("_call", "_state", "_transaction", "headers", "key", "timestamp")

    key: Any
    timestamp: int
    headers: Headers | None

    def __init__(self, call: Call) -> None:
        self._call = call
        # The operator sets all that follows, and the attributes of a call: the running transaction when it changes.
        self._transaction: ProcessTransaction | None = None
        self.key = ENDED
        # Made when it is needed. It ends with the call.
        self._state: KeyedState | None = None

    @property
    def state(self) -> State:
        """The state of the key."""
        state = self._state
        if state is None:
            # No call that can be saved: most records come here.
            if self.key is ENDED or self._transaction is None:
                raise self._used_late()
            state = self._state = self._transaction.state_of(self.key, self.timestamp)
        return state

    @property
    def metrics(self) -> Metrics:
        """Counters, gauges and distributions of the function, by name; the control server shows them.

        Example:
            ```python
            ctx.metrics.counter("rejected").inc()
            ctx.metrics.gauge("open_orders").set(17)
            ctx.metrics.distribution("price").update(9.5)
            ```
        """
        return self._call.metrics

    @property
    def current_watermark(self) -> int:
        """Event time in milliseconds: timers up to it are due. -(1 << 63) before the first record.

        At the end of a bounded run, when all timers fire, it is (1 << 63) - 1: do not register further ones at that point.
        """
        time = self._running_transaction().event_time
        if self._call.at_end:
            return AFTER_ALL
        return BEFORE_ALL if time == BEFORE_ALL else time - self._call.delay_ms

    @property
    def current_processing_time(self) -> int:
        """The wall clock, in milliseconds since the Unix epoch; the clock of the test driver in tests."""
        return self._running_transaction().now()

    def register_event_time_timer(self, timestamp: int) -> None:
        """Have `on_timer` called when the watermark reaches a time; once for each key and time.

        Args:
            timestamp: event time in milliseconds, 0 or more. A time that the watermark has passed is due at once.

        Raises:
            InvalidOperationError: if the function does not define `on_timer`, or the time is not an int, or is below 0.
        """
        self._register_timer(self._running_transaction().event_timers, timestamp)
        self._call.registered += 1

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Have `on_timer` called when the wall clock reaches a time; once for each key and time.

        Args:
            timestamp: milliseconds since the Unix epoch.

        Raises:
            InvalidOperationError: as for timers of event time.
        """
        self._register_timer(self._running_transaction().processing_timers, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete a timer of the key; a missing one is not an error."""
        self._running_transaction().event_timers.delete(self._key_prefix(), checked_timer_time(timestamp))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete a timer of the key; a missing one is not an error."""
        self._running_transaction().processing_timers.delete(self._key_prefix(), checked_timer_time(timestamp))

    def output(self, tag: str, value: Any, *, timestamp: int | None = None) -> None:
        """Put a value out to a side output, with the key and the headers of this call.

        Args:
            tag: one of the `outputs` of the function.
            value: the value.
            timestamp: event time in milliseconds; by default that of this call.

        Raises:
            InvalidOperationError: if the function does not declare the tag.
        """
        self._running_transaction()
        handler = side_output_of(self._call.outputs, tag, self._call.function)
        if handler is not None:
            time = self.timestamp if timestamp is None else checked_timestamp(timestamp)
            handler(value, self.key, time, self.headers)

    def _register_timer(self, timers: Timers, timestamp: int) -> None:
        if not self._call.has_timers:
            raise InvalidOperationError(
                f"{self._call.function} registers a timer, but has no on_timer: define on_timer(self, timestamp, ctx)"
            )
        timers.register(self._key_prefix(), checked_timer_time(timestamp))

    def _key_prefix(self) -> bytes:
        """Return the prefix of the key, without a space."""
        return self._running_transaction().prefix_of(self.key)

    def _running_transaction(self) -> ProcessTransaction:
        transaction = self._transaction
        if transaction is None or self.key is ENDED:
            raise self._used_late()
        return transaction

    def _used_late(self) -> StateError:
        return StateError(
            f"the context of {self._call.function} was used after its call: it is valid only during "
            "process_element or on_timer; do not keep it"
        )


class TimerContext(Context):
    """The context of a timer.

    Attributes:
        time_domain: whether the timer waited for event time or for processing time.
    """

    __slots__ = ("_timer_prefix", "time_domain")

    time_domain: TimeDomain
    _timer_prefix: bytes

    # The prefix of the timer is known, and its key may have another JSON form now than at its registration.

    @property
    def state(self) -> State:
        """The state of the key."""
        state = self._state
        if state is None:
            state = self._state = self._running_transaction().state_at(self._timer_prefix, self.timestamp)
        return state

    def _key_prefix(self) -> bytes:
        self._running_transaction()
        return self._timer_prefix
