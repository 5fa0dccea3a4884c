"""The parts of operators that close things by event time: the clock, late records, and the heads that are due.

A store of the kind has a head for each record key, with a deadline: the time at which its next window closes, or its next
record is known to have no match.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast, get_args

from streamrt.errors import StateError, argument_error
from streamrt.operators.late import drop_late_records
from streamrt.operators.observing import Observe, hear, observer
from streamrt.records import Headers, Tick
from streamrt.state.layout import LATEST_EXPIRY
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import NEVER, TimedTransaction
from streamrt.topology import Node, OperatorContext, RecordHandler, WatermarkStrategy

__all__ = [
    "Close",
    "Closing",
    "ClosingStrategy",
    "DueHeads",
    "EventClock",
    "checked_time",
    "delete_expired",
    "settle_heads",
    "start_clock",
]

_SHARE = 8
# Limit of items that are deleted at once, so that no record takes long after a jump of event time.
_ITEMS_AT_ONCE = 10_000

ClosingStrategy = Literal["key", "partition", "watermark"]

Close = Callable[[TimedTransaction, bytes, Any, Any, int], None]
"""Closes what is due of one head: takes transaction, prefix, head, record key and the time."""


@dataclass(frozen=True)
class Closing:
    """The clock that closes windows.

    Attributes:
        strategy: "key": the highest event time of the key's records. "partition": the highest event time of all records
            that reach the window in its partition. "watermark": the lowest of the highest event times of all
            partitions.
        watermark: watermark strategy for "watermark"; otherwise None.

    Raises:
        ConfigurationError: if the strategy is unknown.
    """

    strategy: ClosingStrategy = "key"
    watermark: WatermarkStrategy | None = None

    def __post_init__(self) -> None:
        if self.strategy not in get_args(ClosingStrategy):
            raise argument_error(
                f"closing_strategy={self.strategy!r}: it must be 'key' (one clock per key), 'partition' (one clock per "
                "partition) or 'watermark' (one clock for all partitions)",
                of_type=isinstance(self.strategy, str),
            )
        if (self.strategy == "watermark") is (self.watermark is None):
            raise ValueError(f"closing_strategy={self.strategy!r} and watermark={self.watermark!r} do not fit together")

    @property
    def by_key(self) -> bool:
        """Whether each key has its own clock."""
        return self.strategy == "key"

    @property
    def by_partition(self) -> bool:
        """Whether all records of a partition move one clock."""
        return self.strategy == "partition"

    def watermarks(self, store: str) -> tuple[tuple[str, WatermarkStrategy], ...]:
        """Return the store with the strategy of the watermark that it needs; see `Operator.watermarks`."""
        return () if self.watermark is None else ((store, self.watermark),)


def _no_heads(transaction: TimedTransaction) -> Iterator[tuple[int, bytes, Any]]:
    return iter(())


class DueHeads(NamedTuple):
    """How the heads of a store close.

    Attributes:
        store: name of the store.
        close: closes what is due of one head.
        closing: the clock.
        open_heads: yields all heads that are open, each with a time that closes a part of it, as `TimedTransaction.due`.
            They close at the end of a bounded run.
        closes_at: returns the time at which the next part of a head closes; None if none is open. Needed with one clock per
            key.
        resumes: whether the operator may leave work for ticks; see `Operator.resumes`.
        ends: whether what is open closes at the end of a bounded run; see `Operator.ends`.
    """

    store: str
    close: Close
    closing: Closing
    open_heads: Callable[[TimedTransaction], Iterator[tuple[int, bytes, Any]]] = _no_heads
    closes_at: Callable[[Any], int | None] = lambda head: None
    resumes: bool = True
    ends: bool = False


def settle_heads(
    heads: DueHeads, running: Callable[[], TimedTransaction], node: Node, context: OperatorContext
) -> Callable[[TimedTransaction], None]:
    """Return the function that closes all that is due at stream time, in the order of deadlines.

    It stops at the end of the task's time slice; ticks continue with the rest. With watermarks, each new watermark
    also calls it. If a record reaches the operator several times, the heads close after the last time.

    Args:
        heads: how heads close.
        running: returns the running transaction of the store.
        node: the node of the operator.
        context: the services of its task.
    """
    store, close, closing, open_heads, closes_at, resumes, ends = heads
    by_key = closing.by_key
    begin_portion, when_complete = context.begin_portion, context.when_complete

    def close_all(transaction: TimedTransaction, due: Iterator[tuple[int, bytes, Any]]) -> None:
        must_stop: Callable[[], bool] | None = None
        # One head at a time: memory may not hold more. Later deadlines of a head get another turn, so that the
        # order does not depend on how far time moves at once.
        for deadline, prefix, head in due:
            if must_stop is None:
                must_stop = begin_portion(node)
            if must_stop():
                break
            close(transaction, prefix, head, transaction.key_of(prefix), deadline)
            if by_key and (time := closes_at(head)) is not None and time <= head[0]:
                transaction.set_head(prefix, head, time)

    def close_due(*, _node: Node = node) -> None:
        transaction = running()
        # With one clock per key, only heads have deadlines that a portion has left.
        close_all(transaction, transaction.due(NEVER if by_key else transaction.clock))

    def settle(_transaction: TimedTransaction) -> None:
        when_complete(node, close_due)

    def tick(moment: Tick, *, _node: Node = node) -> None:
        transaction = running()
        if moment.final:
            close_all(transaction, open_heads(transaction))
        elif resumes:
            if not by_key:
                hear(transaction, store, moment)
            close_due()

    if resumes or ends:
        context.on_tick(node, tick)
    return settle


class EventClock(NamedTuple):
    """The clock of a store that all records of a partition, or of all partitions, move.

    Attributes:
        running: returns the running transaction of the store.
        admit: takes value, key, timestamp and headers of a record, and returns the running transaction. A record that is
            further than the grace period behind the clock is late: it is dropped, counted and reported, and the result is
            None.
        advance: moves the clock by a record that was processed, and closes what is then due.
        wrap: wraps the record handler of a node, which calls these functions.
    """

    running: Callable[[], TimedTransaction]
    admit: Callable[[Any, Any, int, Headers | None], TimedTransaction | None]
    advance: Observe
    wrap: Callable[[RecordHandler, Node], RecordHandler]


def start_clock(store: StoreSpec, grace_ms: int, heads: DueHeads, node: Node, context: OperatorContext) -> EventClock:
    """Return the clock of the store of an operator.

    Args:
        store: the store.
        grace_ms: how far a record may be behind the clock, in milliseconds.
        heads: how the heads of the store close; not with one clock per key.
        node: the node of the operator.
        context: the services of its task.
    """
    running = cast("Callable[[], TimedTransaction]", context.store(store))
    late = drop_late_records(store.name, context)

    def admit(value: Any, key: Any, timestamp: int, headers: Headers | None) -> TimedTransaction | None:
        checked_time(timestamp)
        transaction = running()
        oldest = transaction.clock - grace_ms
        if timestamp >= oldest:
            return transaction
        late(value, key, timestamp, oldest - timestamp, timestamp, timestamp)
        late.leave_out(value, key, timestamp, headers)
        return None

    return EventClock(running, admit, *observer(heads.closing.watermark, settle_heads(heads, running, node, context)))


def delete_expired(transaction: TimedTransaction, prefix: bytes, keep_ms: int, clock: int) -> int | None:
    """Delete the items of a key that are older than a time, and return when to look at it again; None if no item is left.

    Args:
        transaction: the running transaction.
        prefix: the key.
        keep_ms: how long an item is kept, in milliseconds.
        clock: the time at which the head of the key is due.
    """
    timelines, expired = transaction.timelines, clock - keep_ms
    deleted = timelines.delete(prefix, 0, expired, _ITEMS_AT_ONCE) if expired > 0 else 0
    newest = timelines.latest(prefix, LATEST_EXPIRY)
    if newest is None:
        return None
    if deleted >= _ITEMS_AT_ONCE:
        return clock + 1
    # Several items at once, and not at each pause of a gap that time has leapt over.
    return min(newest[0] + keep_ms, max(clock + keep_ms // _SHARE + 1, transaction.clock)) + 1


def checked_time(timestamp: int) -> None:
    """Refuse a negative event time.

    Raises:
        StateError: if `timestamp` is negative.
    """
    if timestamp < 0:
        raise StateError(
            f"a record with timestamp {timestamp} is in no window: event times start at 0 (1970); give such records "
            "another timestamp with set_timestamp, or drop them with filter"
        )
