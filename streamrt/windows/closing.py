"""When windows close: which clock closes them, and how due windows are found."""

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, cast, get_args

from streamrt.common.throttle import log_once
from streamrt.errors import StateError, argument_error
from streamrt.records import Headers, Tick
from streamrt.state.spec import StoreSpec
from streamrt.state.timed import NEVER, TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler, SideOutput, WatermarkStrategy
from streamrt.topology.tallies import LATE_RECORDS
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.late import LATE, LateRecords, OnLate
from streamrt.windows.observing import hear, observer

__all__ = [
    "Close",
    "Closing",
    "ClosingStrategy",
    "KeyedWindows",
    "TimeWindowOperator",
    "WindowOperator",
    "checked_time",
    "log_no_key",
]

ClosingStrategy = Literal["key", "partition", "watermark"]

Close = Callable[[TimedTransaction, bytes, Any, Any, int], None]
"""Closes the due windows of one head: takes transaction, prefix, head, record key and the time."""


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


class KeyedWindows(Protocol):
    """Updates and closes the windows of a key."""

    def update(
        self,
        transaction: TimedTransaction,
        prefix: bytes,
        head: Any,
        value: Any,
        key: Any,
        timestamp: int,
        headers: Headers | None,
        clock: int,
    ) -> list[tuple[int, dict[str, Any]]]:
        """Count a record in its windows, and return the outputs, each with the start of its window."""

    def close(self, transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
        """Close the due windows of a head, the earliest first, and emit them."""


@dataclass(frozen=True)
class WindowOperator(Operator):
    """Common base of all window operators.

    Attributes:
        store: the store of the windows.
        aggregation: the aggregation.
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
        """Results have the start of their window as timestamp, with no bound on its age."""
        return None

    @property
    def collects(self) -> bool:
        """Whether the values of open windows are kept, one by one."""
        return bool(self.aggregation.plan().collectors)

    @abc.abstractmethod
    def read(self, transaction: TimedTransaction, prefix: bytes) -> Iterator[dict[str, Any]]:
        """Yield the windows of a key that are not closed, as they would be emitted now; nothing is changed.

        Args:
            transaction: a transaction with the head and the timeline of the key.
            prefix: the key.
        """

    def running(self, context: OperatorContext) -> Callable[[], TimedTransaction]:
        """Return the function that returns the running transaction."""
        return cast("Callable[[], TimedTransaction]", context.store(self.store))


@dataclass(frozen=True)
class TimeWindowOperator(WindowOperator):
    """Common base of operators of windows over event time.

    Attributes:
        grace_ms: time during which windows stay open for late records, in milliseconds.
        closing: the clock that closes windows.
        on_late: called for each late record and each window that it missed.
    """

    grace_ms: int = 0
    closing: Closing = Closing()
    on_late: OnLate | None = None

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:  # noqa: D102
        return () if self.closing.watermark is None else ((self.store.name, self.closing.watermark),)

    def side_outputs(self) -> tuple[SideOutput, ...]:  # noqa: D102
        return (LATE,)

    def ends(self) -> bool:
        """At the end, open windows are emitted; with `current()`, that has been done."""
        return self.final

    @abc.abstractmethod
    def closed_at(self, head: Any) -> int | None:
        """Return the time at which all windows of a head are closed; None if none is open."""

    def late_records(self, context: OperatorContext) -> LateRecords:
        """Return what late records are reported to."""
        late = LateRecords(self.store.name, self.on_late, context.side_output(LATE.tag))
        context.watch(LATE_RECORDS, self.store.name, lambda: late.count)
        return late

    def resumes(self) -> bool:  # noqa: D102
        # With one clock per key, a record only closes windows of its own key.
        return not self.closing.by_key

    def timed(self) -> bool:  # noqa: D102
        return self.closing.watermark is not None

    def settle(
        self, close: Close, running: Callable[[], TimedTransaction], node: Node, context: OperatorContext
    ) -> Callable[[TimedTransaction], None]:
        """Return the function that closes all windows due at stream time, in the order of deadlines.

        It stops at the end of the task's time slice; ticks continue with the rest. With watermarks, each new watermark
        also calls it.
        """
        name, resumes = self.store.name, self.resumes()
        begin_portion = context.begin_portion

        def close_all(transaction: TimedTransaction, due: Iterator[tuple[int, bytes, Any]]) -> None:
            must_stop: Callable[[], bool] | None = None
            # One head at a time: memory may not hold more. Later deadlines of a head get another turn, so that the
            # order does not depend on how far time moves at once.
            for deadline, prefix, head in due:
                if must_stop is None:
                    must_stop = begin_portion()
                elif must_stop():
                    break
                close(transaction, prefix, head, transaction.key_of(prefix), deadline)

        def settle(transaction: TimedTransaction) -> None:
            close_all(transaction, transaction.due(transaction.clock))

        def tick(moment: Tick, *, _node: Node = node) -> None:
            transaction = running()
            if moment.final:
                close_all(transaction, self._open(transaction))
            elif resumes:
                hear(transaction, name, moment)
                settle(transaction)

        if resumes or self.ends():
            context.on_tick(node, tick)
        return settle

    def _open(self, transaction: TimedTransaction) -> Iterator[tuple[int, bytes, Any]]:
        """Yield all heads with open windows, each with a time that closes them.

        No clock moves there: windows of a later run would be late for ever.
        """
        if not self.closing.by_key:
            yield from transaction.due(NEVER)
            return
        for prefix, head in transaction.heads():
            closed_at = self.closed_at(head)
            if closed_at is not None:
                yield closed_at, prefix, head

    def executor(
        self, windows: KeyedWindows, child: RecordHandler, node: Node, context: OperatorContext
    ) -> RecordHandler:
        """Return the closure that counts records in the windows of their key, and closes due windows."""
        running = self.running(context)
        settle = self.settle(windows.close, running, node, context)
        no_key = log_no_key(self.store.name)
        by_key, by_partition = self.closing.by_key, self.closing.by_partition
        observe, wrap = observer(self.closing.watermark, settle)

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
            outputs = windows.update(transaction, prefix, head, value, key, timestamp, headers, clock)
            if by_key:
                head = transaction.head(prefix)
                if head is not None:
                    windows.close(transaction, prefix, head, key, clock)
            elif by_partition:
                transaction.advance(clock)
                if transaction.due_from <= clock:
                    settle(transaction)
            else:
                observe(transaction, timestamp)
            for start, output in outputs:
                child(output, key, start, None)

        return wrap(run, node)


def log_no_key(store: str) -> Callable[[], None]:
    """Return a function that logs, once, that records without a key are left out."""
    return log_once("%r leaves out records without a key: they are in no window", store)


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
