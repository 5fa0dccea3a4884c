"""When windows close: which clock counts, and how the windows that are due are found."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, cast, get_args

from streamrt.errors import StateError, argument_error
from streamrt.models import Headers, Tick
from streamrt.state import StoreSpec, TimedTransaction
from streamrt.topology import Executor, Node, Operator, OperatorContext, WatermarkStrategy
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.late import OnLate

__all__ = [
    "Close",
    "Closing",
    "ClosingStrategy",
    "KeyedWindows",
    "TimeWindowOperator",
    "WindowOperator",
    "checked_time",
    "log_no_key",
    "note_observed",
]

ClosingStrategy = Literal["key", "partition", "watermark"]

logger = logging.getLogger("streamrt")

Close = Callable[[TimedTransaction, bytes, Any, Any, int], None]
"""Closes the windows of one head that are due at a time: takes transaction, prefix, head, record key and this time."""


@dataclass(frozen=True)
class Closing:
    """Which clock closes windows.

    Attributes:
        strategy: "key": the highest event time of the key's own records. "partition": that of all records that reach the
            window in its partition. "watermark": the lowest of the highest event times of all partitions.
        watermark: how the watermark is made, for "watermark"; None elsewhere.

    Raises:
        ConfigurationError: if there is no such strategy.
    """

    strategy: ClosingStrategy = "key"
    watermark: WatermarkStrategy | None = None

    def __post_init__(self) -> None:
        if self.strategy not in get_args(ClosingStrategy):
            raise argument_error(
                f"closing_strategy={self.strategy!r}: it is 'key' (each key has its own clock), 'partition' (all records of "
                "a partition move its clock) or 'watermark' (one clock for all partitions)",
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


class KeyedWindows(Protocol):
    """What a record, and time, do to the windows of a key."""

    def update(
        self, transaction: TimedTransaction, prefix: bytes, head: Any, value: Any, key: Any, timestamp: int, clock: int
    ) -> list[tuple[int, dict[str, Any]]]:
        """Count a record in its windows, and return what is emitted for it, each with its start."""

    def close(self, transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
        """Close the windows of a head that are due, the earliest first, and emit them."""


@dataclass(frozen=True)
class WindowOperator(Operator):
    """What all operators of windows have in common.

    Attributes:
        store: where windows are kept.
        aggregation: what is computed.
        final: whether windows are emitted when they close; otherwise with each record that changes them.
    """

    name: ClassVar[str] = "window"
    store: StoreSpec
    aggregation: Aggregation
    final: bool

    def describe(self) -> str:  # noqa: D102
        return f"{self.store.name}, {'final' if self.final else 'current'}"

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)

    @property
    def holds_back_ms(self) -> int | None:
        """Results carry the start of their window, which may be any time ago."""
        return None

    def running(self, context: OperatorContext) -> Callable[[], TimedTransaction]:
        """Return the function that gives the running transaction."""
        return cast("Callable[[], TimedTransaction]", context.store(self.store))


@dataclass(frozen=True)
class TimeWindowOperator(WindowOperator):
    """What operators of windows over event time have in common.

    Attributes:
        grace_ms: how long windows stay open for late records, in milliseconds.
        closing: which clock closes them.
        on_late: called for each record and each window that it is too late for.
    """

    grace_ms: int = 0
    closing: Closing = Closing()
    on_late: OnLate | None = None

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:  # noqa: D102
        return () if self.closing.watermark is None else ((self.store.name, self.closing.watermark),)

    def resumes(self) -> bool:  # noqa: D102
        # Where each key has its own clock, a record closes the windows of its key alone.
        return not self.closing.by_key

    def settle(
        self, close: Close, running: Callable[[], TimedTransaction], node: Node, context: OperatorContext
    ) -> Callable[[TimedTransaction], None]:
        """Return the function that closes what is due at stream time, in the order of deadlines.

        It stops when the time slice of the task is over; ticks go on with what is left. With watermarks, it is also called
        whenever one arrives.
        """
        name = self.store.name
        begin_portion = context.begin_portion

        def settle(transaction: TimedTransaction) -> None:
            must_stop: Callable[[], bool] | None = None
            # One at a time: a head that is due may be the last one that fits into memory. What is due later has another turn,
            # so that the order is the same however far time has moved at once.
            for deadline, prefix, head in transaction.due(transaction.clock):
                if must_stop is None:
                    must_stop = begin_portion()
                elif must_stop():
                    break
                close(transaction, prefix, head, transaction.key_of(prefix), deadline)

        def tick(moment: Tick, *, _node: Node = node) -> None:
            watermark = moment.watermarks.get(name)
            transaction = running()
            if watermark is not None:
                transaction.advance(watermark)
            settle(transaction)

        if self.resumes():
            context.on_tick(node, tick)
        return settle

    def executor(self, windows: KeyedWindows, child: Executor, node: Node, context: OperatorContext) -> Executor:
        """Return the closure that hands records to the windows of their key, and closes what their time closes."""
        running = self.running(context)
        settle = self.settle(windows.close, running, node, context)
        no_key = log_no_key(self.store.name)
        by_key, by_partition = self.closing.by_key, self.closing.by_partition

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                no_key()
                return
            checked_time(timestamp)
            transaction = running()
            prefix = transaction.prefix(key)
            head = transaction.head(prefix)
            clock = transaction.clock
            if by_key:
                clock = timestamp if head is None else head[0]
            if timestamp > clock and (by_key or by_partition):
                clock = timestamp
            outputs = windows.update(transaction, prefix, head, value, key, timestamp, clock)
            if by_key:
                head = transaction.head(prefix)
                if head is not None:
                    windows.close(transaction, prefix, head, key, clock)
            elif by_partition:
                transaction.advance(clock)
                if transaction.due_from <= clock:
                    settle(transaction)
            else:
                note_observed(transaction, timestamp)
            for start, output in outputs:
                child(output, key, start, None)

        return run


def log_no_key(store: str) -> Callable[[], None]:
    """Return a function that tells, once, that records without a key are left out."""
    told = False

    def tell() -> None:
        nonlocal told
        if not told:
            told = True
            logger.debug("records without a key are in no window, so %r leaves them out", store)

    return tell


def note_observed(transaction: TimedTransaction, timestamp: int) -> None:
    """Note the event time of a record, from which watermarks are made."""
    observed = transaction.observed
    if observed is None or timestamp > observed:
        transaction.observed = timestamp


def checked_time(timestamp: int) -> None:
    """Refuse a record without a time.

    Raises:
        StateError: if its event time is negative.
    """
    if timestamp < 0:
        raise StateError(
            f"a record with the timestamp {timestamp} is in no window: event times begin at 0 (1970); give such records "
            "another timestamp with set_timestamp, or drop them with filter"
        )
