"""`join_interval`: pairs of records of two sides that are close in time."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from streamrt.common.copies import deep_copy
from streamrt.common.throttle import log_once
from streamrt.joins.notes import Warnings
from streamrt.joins.retention import Retention
from streamrt.joins.sides import Side, Sides, record_key_of
from streamrt.joins.stream import matches_nothing
from streamrt.records import Headers
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import MergeOperator, Node, OperatorContext, RecordHandler
from streamrt.topology.node import numbers_of

__all__ = ["IntervalHow", "IntervalJoin"]

IntervalHow = Literal["inner", "left", "right", "outer"]
"""Records that are passed on without a match: "inner" none, "left" and "right" those of one side, "outer" all."""


@dataclass(frozen=True)
class IntervalJoin(MergeOperator):
    """Merges each left record at time t with all right records of its key that the sides reach.

    The second record of a pair, from either side, passes the pair on, with the later timestamp of both and without
    headers. A record without a match on arrival is passed on by itself if `how` says so; a later record may still match it.

    One store keeps both sides for a grace period of stream time.

    Attributes:
        sides: which right records are in [t - backward, t + forward], and what becomes of those without a match.
        grace_ms: how long records are kept, in milliseconds of stream time.
        store: the store of the records.

    Example:
        >>> from streamrt.joins.merging import merge_of
        >>> store = StoreSpec("pairs", transaction=TimedTransaction)
        >>> sides = Sides("outer", merge_of("join_interval", "raise"), 1_000, 500)
        >>> IntervalJoin(sides, 60_000, store).describe()
        'outer, -1000 ms to +500 ms'
    """

    name: ClassVar[str] = "join_interval"
    by_key: ClassVar[bool] = True
    sides: Sides
    grace_ms: int
    store: StoreSpec

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        grace, store = self.grace_ms, context.store(self.store)
        retention = Retention(grace)
        late = Warnings(
            "%s dropped a record of key %r with timestamp %d, more than the grace of %d ms behind stream time %d", node
        )
        keyless = log_once("%s skips records without a key, or with a None in it: they match nothing", node)

        def handler(side: Side) -> RecordHandler:
            """Return the closure of one side."""
            alone = side.passes_unmatched

            def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
                if matches_nothing(key):
                    keyless()
                    if alone:
                        child(side.pair(value, None), key, timestamp, None)
                    return
                transaction = cast("TimedTransaction", store())
                now = transaction.clock
                if timestamp > now:
                    retention.advance(transaction, timestamp)
                    now = timestamp
                elif timestamp < now - grace:
                    late.note(key, timestamp, grace, now)
                    return
                own, other = side.prefixes(transaction, key)
                # Make all outputs before storing anything: a merge that raises leaves the store unchanged.
                outputs = side.pairs(transaction, other, value, timestamp, now - grace)
                if alone and not outputs:
                    outputs.append((side.pair(deep_copy(value), None), timestamp))
                transaction.timelines.add(own, timestamp, value)
                retention.keep(transaction, own, timestamp)
                for output, time in outputs:
                    child(output, key, time, None)

            return run

        left, right = self.sides.both()
        return handler(left), handler(right)

    def describe(self) -> str:  # noqa: D102
        return self.sides.describe()

    def keeps(self) -> tuple[str, ...]:
        """Return the kind of the join, and how long it keeps records."""
        return (*super().keeps(), *numbers_of(self.sides), *numbers_of(self))

    def multiplies_records(self) -> bool:
        """A record may match several of the other side."""
        return True

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)

    def record_key(self, key: Any) -> Any:
        """Return the key without its side."""
        return record_key_of(key)
