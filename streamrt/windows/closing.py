"""What all windows are: operators with a store, an aggregation, and a clock that closes them."""

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, cast

from streamrt.common.throttle import log_once
from streamrt.operators.closing import Close, Closing, DueHeads, checked_time, settle_heads
from streamrt.operators.late import LATE, LateRecords, OnLate
from streamrt.operators.observing import observer
from streamrt.records import Headers
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import NEVER, TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler, SideOutput, WatermarkStrategy
from streamrt.topology.node import numbers_of
from streamrt.topology.tallies import LATE_RECORDS
from streamrt.windows.aggregation import Aggregation

__all__ = [
    "KeyedWindows",
    "TimeWindowOperator",
    "WindowOperator",
    "log_no_key",
]

_BY_KEY: Final = Closing()
_FEW = 100
"""Windows of a key that a record closes at once."""


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

    def keeps(self) -> tuple[str, ...]:
        """Return the kind of the windows with their lengths, and their aggregations."""
        return (*super().keeps(), *numbers_of(self), *self.aggregation.keeps())

    def multiplies_records(self) -> bool:
        """One record may change several windows, and close others."""
        return True

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
    closing: Closing = _BY_KEY
    on_late: OnLate | None = None

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:  # noqa: D102
        return self.closing.watermarks(self.store.name)

    def side_outputs(self) -> tuple[SideOutput, ...]:  # noqa: D102
        return (LATE,)

    def ends(self) -> bool:
        """At the end, open windows are emitted; with `current()`, that has been done."""
        return self.final

    @abc.abstractmethod
    def closes_at(self, head: Any) -> int | None:
        """Return the time at which the next window of a head closes; None if none is open."""

    @property
    @abc.abstractmethod
    def most_open(self) -> int:
        """The number of windows of a key that one record may close at most."""

    def late_records(self, context: OperatorContext) -> LateRecords:
        """Return what late records are reported to."""
        late = LateRecords(self.store.name, self.on_late, context.side_output(LATE.tag))
        context.watch(LATE_RECORDS, self.store.name, lambda: late.count)
        return late

    def resumes(self) -> bool:  # noqa: D102
        # With one clock per key, a record only closes windows of its own key; few of them close at once.
        return not self.closing.by_key or (self.final and self.most_open > _FEW)

    def timed(self) -> bool:  # noqa: D102
        return self.closing.watermark is not None

    def key_closer(self, close: Close, node: Node, context: OperatorContext) -> Close:
        """Return the function that closes the windows of a key that are due at the clock of the key.

        If they may be many, it stops at the end of the task's time slice. The head then has a deadline, which ticks find.
        """
        if not self.resumes():
            return close
        begin_portion, closes_at = context.begin_portion, self.closes_at

        def close_key(transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
            must_stop: Callable[[], bool] | None = None
            while (time := closes_at(head)) is not None and time < clock:
                if must_stop is None:
                    must_stop = begin_portion(node)
                if must_stop():
                    transaction.set_head(prefix, head, time)
                    return
                close(transaction, prefix, head, key, time)
            close(transaction, prefix, head, key, clock)

        return close_key

    def settle(
        self, close: Close, running: Callable[[], TimedTransaction], node: Node, context: OperatorContext
    ) -> Callable[[TimedTransaction], None]:
        """Return the function that closes all windows due at stream time, in the order of deadlines.

        It stops at the end of the task's time slice; ticks continue with the rest. With watermarks, each new watermark
        also calls it. If a record reaches the operator several times, windows close after the last time.
        """
        return settle_heads(
            DueHeads(
                self.store.name, close, self.closing, self._open_heads, self.closes_at, self.resumes(), self.ends()
            ),
            running,
            node,
            context,
        )

    def _open_heads(self, transaction: TimedTransaction) -> Iterator[tuple[int, bytes, Any]]:
        """Yield all heads with open windows, each with a time that closes them.

        No clock moves there: windows of a later run would be late for ever.
        """
        if not self.closing.by_key:
            yield from transaction.due(NEVER)
            return
        for prefix, head in transaction.heads():
            while (time := self.closes_at(head)) is not None:
                yield time, prefix, head

    def executor(
        self, windows: KeyedWindows, child: RecordHandler, node: Node, context: OperatorContext
    ) -> RecordHandler:
        """Return the closure that counts records in the windows of their key, and closes due windows."""
        running = self.running(context)
        settle = self.settle(windows.close, running, node, context)
        close_key = self.key_closer(windows.close, node, context)
        no_key = log_no_key(self.store.name)
        by_key, by_partition = self.closing.by_key, self.closing.by_partition
        advance, wrap = observer(self.closing.watermark, settle)

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
                    close_key(transaction, prefix, head, key, clock)
            else:
                advance(transaction, timestamp)
            for start, output in outputs:
                child(output, key, start, None)

        return wrap(run, node)


def log_no_key(store: str) -> Callable[[], None]:
    """Return a function that logs, once, that records without a key are left out."""
    return log_once("%r leaves out records without a key: they are in no window", store)
