"""Event-time order: records of a partition are held until no earlier one can come that is not late.

The head of a key is its deadline: the time of its earliest record, and the grace period. The timeline has the records, as
`[value, headers]`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from streamrt.common.copies import deep_copy
from streamrt.operators.closing import Closing, DueHeads, checked_time, settle_heads
from streamrt.operators.late import LATE, drop_late_records
from streamrt.operators.observing import observer
from streamrt.records import Headers
from streamrt.state.journal import due
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import NEVER, TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler, SideOutput, WatermarkStrategy
from streamrt.topology.node import numbers_of

__all__ = ["InOrder"]


@dataclass(frozen=True)
class InOrder(Operator):
    """Passes on records in the order of their timestamps; those of a key with equal ones in the order of arrival.

    A record waits until the clock has passed its time and the grace period, or for the end of a bounded run. One that is
    further behind the clock is late, and dropped.

    Attributes:
        store: the store of the records that wait.
        grace_ms: how far a record may be behind the clock, in milliseconds.
        closing: the clock: that of a partition, or a watermark.

    Example:
        >>> InOrder(StoreSpec("order", transaction=TimedTransaction), 5_000, Closing("partition")).describe()
        'grace 5000 ms'
    """

    name: ClassVar[str] = "in_order"
    store: StoreSpec
    grace_ms: int
    closing: Closing

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        store, grace, by_partition = context.store(self.store), self.grace_ms, self.closing.by_partition

        def running() -> TimedTransaction:
            return cast("TimedTransaction", store())

        def close(transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
            timelines, time = transaction.timelines, head - grace - 1
            records = timelines.items(prefix, time, time + 1)
            for _, (value, headers) in records:
                kept = None if headers is None else [(name, content) for name, content in headers]
                # One at a time: if an operator below fails on a record, the next ones are still passed on.
                timelines.delete(prefix, time, time + 1, 1)
                due(transaction.journal, child)(deep_copy(value), key, time, kept)
            following = timelines.first_time(prefix, time + 1)
            if following is None:
                transaction.delete_head(prefix)
            else:
                deadline = following + grace + 1
                transaction.set_head(prefix, deadline, deadline)

        late = drop_late_records(self.store.name, context)
        heads = DueHeads(
            self.store.name, close, lambda head: None, _all_heads, self.closing, self.resumes(), self.ends()
        )
        settle = settle_heads(heads, running, node, context)
        observe, wrap = observer(self.closing.watermark, settle)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            checked_time(timestamp)
            transaction = running()
            now = transaction.clock
            if by_partition and timestamp > now:
                now = timestamp
            if timestamp < now - grace:
                late(value, key, timestamp, now - grace - timestamp, timestamp, timestamp + 1)
                late.leave_out(value, key, timestamp, headers)
                return
            prefix = transaction.prefix(key)
            transaction.timelines.add(prefix, timestamp, [value, headers])
            head, deadline = transaction.head(prefix), timestamp + grace + 1
            if head is None or deadline < head:
                transaction.set_head(prefix, deadline, deadline)
            if not by_partition:
                observe(transaction, timestamp)
                return
            transaction.advance(now)
            if transaction.due_from <= now:
                settle(transaction)

        return wrap(run, node)

    def describe(self) -> str:  # noqa: D102
        return f"grace {self.grace_ms} ms"

    def keeps(self) -> tuple[str, ...]:
        """Return the kind of the operator, and how long it keeps records."""
        return (*super().keeps(), *numbers_of(self))

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:  # noqa: D102
        return True

    def multiplies_records(self) -> bool:
        """One record may make several others due."""
        return True

    @property
    def holds_back_ms(self) -> int | None:
        """A record is passed on when the clock has passed its time and the grace period."""
        return self.grace_ms + 1

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:  # noqa: D102
        return () if self.closing.watermark is None else ((self.store.name, self.closing.watermark),)

    def side_outputs(self) -> tuple[SideOutput, ...]:  # noqa: D102
        return (LATE,)

    def resumes(self) -> bool:  # noqa: D102
        return True

    def ends(self) -> bool:
        """At the end, all records that wait are passed on."""
        return True

    def timed(self) -> bool:  # noqa: D102
        return self.closing.watermark is not None


def _all_heads(transaction: TimedTransaction) -> Iterator[tuple[int, bytes, Any]]:
    return transaction.due(NEVER)
