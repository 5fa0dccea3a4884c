"""Functions of records and of broadcast records, and what they learn of their calls."""

import abc
from collections.abc import Iterable
from typing import Any, NoReturn

from streamrt.errors import InvalidOperationError
from streamrt.process.context import Context, TimerContext
from streamrt.process.function import TimedFunction
from streamrt.state import MapState, State
from streamrt.state.transactions.timers import Timers

__all__ = ["BroadcastContext", "BroadcastProcessFunction", "BroadcastTimerContext", "BroadcastWriteContext"]


class BroadcastContext(Context):
    """The context of one call of a `BroadcastProcessFunction`; it is valid during this call.

    In `process_element` and `on_timer`, broadcast state is read-only. In `process_broadcast_element` it is writable, and
    there is no other state and no timer.

    Attributes:
        key: the key of the record, or of the timer.
        timestamp: event time of the record in milliseconds, or the time of the timer.
        headers: the headers of the record; None for a timer.
    """

    __slots__ = ()

    def broadcast_state(self, name: str) -> MapState:
        """Return a map of broadcast state. Each partition has a whole copy of it.

        Args:
            name: its name.

        Raises:
            StateError: from a change of the map, except in `process_broadcast_element`.
        """
        return self._running_transaction().broadcast(name, None)


class BroadcastWriteContext(BroadcastContext):
    """The context of a broadcast record: it may change broadcast state, and has no other state and no timers."""

    __slots__ = ()

    def broadcast_state(self, name: str) -> MapState:
        """Return a map of broadcast state, which may be changed."""
        transaction, writer = self._running_transaction(), self._state
        if writer is None:
            writer = self._state = transaction.broadcast_scope()
        return transaction.broadcast(name, writer)

    @property
    def state(self) -> State:
        """Refuse: a broadcast record is in all partitions, and a key in one."""
        self._refuse_use("state of a key")

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Refuse: there are no timers."""
        self._refuse_use("timers")

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Refuse: there are no timers."""
        self._refuse_use("timers")

    def _register_timer(self, timers: Timers, timestamp: int) -> None:
        self._refuse_use("timers")

    def _refuse_use(self, what: str) -> NoReturn:
        raise InvalidOperationError(
            f"{self._call.function}.process_broadcast_element has no {what}, because each partition gets the record: use "
            "broadcast_state(name), or do it in process_element"
        )


class BroadcastTimerContext(BroadcastContext, TimerContext):
    """The context of a timer of a `BroadcastProcessFunction`.

    Attributes:
        time_domain: whether the timer waited for event time or for processing time.
    """

    __slots__ = ()


class BroadcastProcessFunction(TimedFunction, abc.ABC):
    """A function of records and of broadcast records, which reach all partitions, for `ConnectedFrames.process`.

    Derive from it. It is pickled and copied like a `ProcessFunction`, and results go on in the same way. A broadcast record
    has the same effect in each partition only if `process_broadcast_element` uses nothing but the record and broadcast
    state: no clock, no chance, nothing outside.

    Attributes:
        outputs: the side outputs that `ctx.output` may use; `frame.side_output(tag)` reads them.

    Example:
        ```python
        class Rules(BroadcastProcessFunction):
            def process_broadcast_element(self, rule, ctx):
                ctx.broadcast_state("rules")[rule["id"]] = rule

            def process_element(self, order, ctx):
                for rule in ctx.broadcast_state("rules").values():
                    if order["total"] >= rule["minimum"]:
                        yield {**order, "rule": rule["id"]}

        orders.connect(rules.broadcast()).process(Rules()).to_topic(matches)
        ```
    """

    @abc.abstractmethod
    def process_element(self, value: Any, ctx: BroadcastContext) -> Iterable[Any] | None:
        """Process a record of the frame on which `connect` was called.

        Args:
            value: its value.
            ctx: its key, timestamp and headers, the state of the key, timers, side outputs, and broadcast state to read.

        Returns:
            The results; None for none.
        """

    @abc.abstractmethod
    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterable[Any] | None:
        """Process a broadcast record; called once in each partition.

        Args:
            value: its value.
            ctx: its key, timestamp and headers, side outputs, and broadcast state to change.

        Returns:
            The results; None for none. They come from each partition.
        """
