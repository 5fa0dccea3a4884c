"""`drop_duplicates`: the first record of each key.

The head of a key is the event time of the record that was passed on. With `within`, a record is a duplicate if it is at
most so much later. A record that is further than the grace period behind the clock is late: the head of what came before it
may be gone. So when the clock has passed both, no duplicate can come any more that is not late: the head is deleted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from streamrt.common.throttle import log_once
from streamrt.operators.closing import Closing, DueHeads, checked_time, settle_heads
from streamrt.operators.late import LATE, drop_late_records
from streamrt.operators.observing import observer
from streamrt.records import Headers
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler, SideOutput, WatermarkStrategy
from streamrt.topology.node import numbers_of

__all__ = ["DropDuplicates"]


@dataclass(frozen=True)
class DropDuplicates(Operator):
    """Passes on the first record of each key to arrive, as it is.

    Records without a key are passed on: nothing says that they are duplicates.

    Attributes:
        store: the store of the keys that were seen.
        within_ms: how much later than the record that was passed on a duplicate may be, in milliseconds; None: any time, so
            keys are kept for ever.
        grace_ms: how far a record may be behind the clock, in milliseconds, if `within_ms` is given.
        closing: the clock: that of a partition, or a watermark.

    Example:
        >>> store = StoreSpec("drop_duplicates", transaction=TimedTransaction)
        >>> DropDuplicates(store, 60_000, 0, Closing("partition")).describe()
        'within 60000 ms'
        >>> DropDuplicates(store, None, 0, Closing("partition")).describe()
        'keys are kept for ever'
    """

    name: ClassVar[str] = "drop_duplicates"
    store: StoreSpec
    within_ms: int | None
    grace_ms: int
    closing: Closing

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        store, within, grace = context.store(self.store), self.within_ms, self.grace_ms
        by_partition = self.closing.by_partition
        keyless = log_once("%s passes on records without a key: nothing says that they are duplicates", node)

        def running() -> TimedTransaction:
            return cast("TimedTransaction", store())

        def run_unbounded(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                keyless()
            else:
                transaction = running()
                prefix = transaction.prefix(key)
                if transaction.head(prefix) is not None:
                    return
                transaction.set_head(prefix, timestamp)
            child(value, key, timestamp, headers)

        if within is None:
            return run_unbounded
        late = drop_late_records(self.store.name, context)
        heads = DueHeads(
            self.store.name, _delete_head, lambda head: None, _no_heads, self.closing, self.resumes(), self.ends()
        )
        open_for = within + grace + 1
        settle = settle_heads(heads, running, node, context)
        observe, wrap = observer(self.closing.watermark, settle)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                keyless()
                child(value, key, timestamp, headers)
                return
            checked_time(timestamp)
            transaction = running()
            now = transaction.clock
            if by_partition and timestamp > now:
                now = timestamp
            if timestamp < now - grace:
                late(value, key, timestamp, now - grace - timestamp, timestamp, timestamp + within)
                late.leave_out(value, key, timestamp, headers)
                return
            prefix = transaction.prefix(key)
            seen = transaction.head(prefix)
            first = seen is None or timestamp > seen + within
            if first:
                transaction.set_head(prefix, timestamp, timestamp + open_for)
            if by_partition:
                transaction.advance(now)
                if transaction.due_from <= now:
                    settle(transaction)
            else:
                observe(transaction, timestamp)
            if first:
                child(value, key, timestamp, headers)

        return wrap(run, node)

    def describe(self) -> str:  # noqa: D102
        return "keys are kept for ever" if self.within_ms is None else f"within {self.within_ms} ms"

    def keeps(self) -> tuple[str, ...]:
        """Return what the keys are kept for."""
        return (*super().keeps(), *numbers_of(self))

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:  # noqa: D102
        return True

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:  # noqa: D102
        if self.within_ms is None or self.closing.watermark is None:
            return ()
        return ((self.store.name, self.closing.watermark),)

    def side_outputs(self) -> tuple[SideOutput, ...]:  # noqa: D102
        return () if self.within_ms is None else (LATE,)

    def resumes(self) -> bool:  # noqa: D102
        return self.within_ms is not None

    def timed(self) -> bool:  # noqa: D102
        return self.within_ms is not None and self.closing.watermark is not None


def _delete_head(transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
    transaction.delete_head(prefix)


def _no_heads(transaction: TimedTransaction) -> Iterator[tuple[int, bytes, Any]]:
    """Yield nothing: at the end of a bounded run, keys stay, as more of their records may come in another run."""
    return iter(())
