"""Event-time order: records of a partition are held until no earlier one can come that is not late.

The head of a key is its deadline: the time of its earliest record, and the grace period. The timeline has the records, as
`[value, headers]`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.common.copies import deep_copy
from streamrt.operators.closing import Closing, DueHeads, start_clock
from streamrt.operators.late import LATE
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
        grace = self.grace_ms

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

        heads = DueHeads(self.store.name, close, self.closing, _all_heads, ends=self.ends())
        clock = start_clock(self.store, grace, heads, node, context)
        admit, advance = clock.admit, clock.advance

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            transaction = admit(value, key, timestamp, headers)
            if transaction is None:
                return
            prefix = transaction.prefix(key)
            transaction.timelines.add(prefix, timestamp, [value, headers])
            head, deadline = transaction.head(prefix), timestamp + grace + 1
            if head is None or deadline < head:
                transaction.set_head(prefix, deadline, deadline)
            advance(transaction, timestamp)

        return clock.wrap(run, node)

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
        return self.closing.watermarks(self.store.name)

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
