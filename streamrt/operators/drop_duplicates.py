"""`drop_duplicates`: the first record of each key.

The head of a key is the event time of the record that was passed on. With `within`, a record is a duplicate if it is at
most so much later. A record that is further than the grace period behind the clock is late: the head of what came before it
may be gone. So when the clock has passed both, no duplicate can come any more that is not late: the head is deleted.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from streamrt.common.throttle import log_once
from streamrt.operators.closing import Closing, DueHeads, start_clock
from streamrt.operators.late import LATE
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
        store, within = context.store(self.store), self.within_ms
        keyless = log_once("%s passes on records without a key: nothing says that they are duplicates", node)

        def run_unbounded(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                keyless()
            else:
                transaction = cast("TimedTransaction", store())
                prefix = transaction.prefix(key)
                if transaction.head(prefix) is not None:
                    return
                transaction.set_head(prefix, timestamp)
            child(value, key, timestamp, headers)

        if within is None:
            return run_unbounded
        open_for = within + self.grace_ms + 1
        # At the end of a bounded run keys stay: more of their records may come in another run.
        heads = DueHeads(self.store.name, _delete_head, self.closing)
        clock = start_clock(self.store, self.grace_ms, heads, node, context)
        admit, advance = clock.admit, clock.advance

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                keyless()
                child(value, key, timestamp, headers)
                return
            transaction = admit(value, key, timestamp, headers)
            if transaction is None:
                return
            prefix = transaction.prefix(key)
            seen = transaction.head(prefix)
            first = seen is None or timestamp > seen + within
            if first:
                transaction.set_head(prefix, timestamp, timestamp + open_for)
            advance(transaction, timestamp)
            if first:
                child(value, key, timestamp, headers)

        return clock.wrap(run, node)

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
        return () if self.within_ms is None else self.closing.watermarks(self.store.name)

    def side_outputs(self) -> tuple[SideOutput, ...]:  # noqa: D102
        return () if self.within_ms is None else (LATE,)

    def resumes(self) -> bool:  # noqa: D102
        return self.within_ms is not None

    def timed(self) -> bool:  # noqa: D102
        return self.within_ms is not None and self.closing.watermark is not None


def _delete_head(transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
    transaction.delete_head(prefix)
