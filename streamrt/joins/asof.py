"""`join_asof`: each left record with the right record that was valid at its time."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from streamrt.common.copies import deep_copy
from streamrt.common.throttle import log_once
from streamrt.joins.merging import Merge
from streamrt.joins.notes import Warnings
from streamrt.joins.retention import Retention
from streamrt.joins.stream import matches_nothing
from streamrt.records import Headers
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import MergeOperator, Node, OperatorContext, RecordHandler
from streamrt.topology.node import numbers_of

__all__ = ["AsOfHow", "AsOfJoin"]

AsOfHow = Literal["inner", "left"]
"""Left records without a right one: "inner" drops them, "left" passes them on by themselves."""


@dataclass(frozen=True)
class AsOfJoin(MergeOperator):
    """Merges each left record with the right record of its key that has the highest timestamp not after its own.

    Right records produce no output. Of several with the same timestamp, the last one that arrived counts. A right
    record with the value None means that no record is valid from then on. The last right record of a key is kept until
    the next one arrives, and earlier ones for a grace period of stream time.

    Attributes:
        how: "left" also passes on left records without a right one.
        merge: function of left and right value; a missing right value is None.
        grace_ms: maximum distance of a record behind stream time, in milliseconds.
        store: the store of right records.

    Example:
        >>> from streamrt.joins.merging import merge_of
        >>> from streamrt.state.transactions.timed import TimedTransaction
        >>> store = StoreSpec("limits", transaction=TimedTransaction)
        >>> AsOfJoin("inner", merge_of("join_asof", "raise"), 60_000, store).describe()
        'inner'
    """

    name: ClassVar[str] = "join_asof"
    by_key: ClassVar[bool] = True
    # Left records find the right record that was in force at their time, whatever has come since.
    takes_early: ClassVar[bool] = True
    how: AsOfHow
    merge: Merge
    grace_ms: int
    store: StoreSpec

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        merge, grace, store, all_left = self.merge, self.grace_ms, context.store(self.store), self.how == "left"
        retention = Retention(grace, in_force=True)
        late = Warnings(
            "%s dropped a right record of key %r with timestamp %d, more than the grace of %d ms behind stream time %d",
            node,
        )
        too_late = Warnings(
            "%s found nothing for a left record of key %r with timestamp %d, more than the grace of %d ms behind stream "
            "time %d",
            node,
        )
        keyless = log_once("%s skips records without a key, or with a None in it: they match nothing", node)

        def left(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            found = None
            if matches_nothing(key):
                keyless()
            else:
                transaction = cast("TimedTransaction", store())
                now = transaction.clock
                if timestamp > now:
                    retention.advance(transaction, timestamp)
                    now = timestamp
                if timestamp < now - grace:
                    too_late.note(key, timestamp, grace, now)
                else:
                    item = transaction.timelines.latest(transaction.prefix(key), timestamp)
                    if item is not None:
                        found = item[1]
            if found is not None:
                child(merge(value, deep_copy(found)), key, timestamp, headers)
            elif all_left:
                child(merge(value, None), key, timestamp, headers)

        def right(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if matches_nothing(key):
                keyless()
                return
            transaction = cast("TimedTransaction", store())
            now = transaction.clock
            if timestamp > now:
                retention.advance(transaction, timestamp)
            elif timestamp < now - grace:
                # Its predecessor and its successor may already be deleted.
                late.note(key, timestamp, grace, now)
                return
            prefix = transaction.prefix(key)
            transaction.timelines.add(prefix, timestamp, value)
            retention.keep(transaction, prefix, timestamp)

        return left, right

    def ranks(self, inputs: int) -> tuple[int, ...]:
        """Return ranks that put a right record before left ones of the same time, at which it is already valid."""
        return (1, 0)

    def describe(self) -> str:  # noqa: D102
        return self.how

    def keeps(self) -> tuple[str, ...]:
        """Return the kind of the join, and how long it keeps records."""
        return (*super().keeps(), *numbers_of(self))

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)
