"""`join`: pairs of records of two sides, and records that turn out to have no match.

The records of a key and side are in one timeline (`sides.py`). With the clock at c, a record at time t is late if
t < c - grace. So at c > t + after + grace no further record can match it, where `after` is how far a match may be after it:
it is then *settled*. Whether it had a match follows from the timelines, which keep what the other side needs for that:
nothing is written when a record finds a match.

The head of a key and side is `[settled, deadline, passed]`: a time before which all of its records are settled; its deadline,
at which the earliest other record is settled, or old ones are deleted; and how many records of that time have been passed on
by themselves, if an operator below has failed on one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.common.copies import deep_copy
from streamrt.common.throttle import log_once
from streamrt.joins.sides import Side, Sides, is_left, record_key_of
from streamrt.operators.closing import Closing, DueHeads, delete_expired, start_clock
from streamrt.operators.late import LATE
from streamrt.records import Headers
from streamrt.state.journal import due
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import MergeOperator, Node, OperatorContext, RecordHandler, SideOutput, WatermarkStrategy
from streamrt.topology.node import numbers_of

__all__ = ["StreamJoin", "matches_nothing"]


def matches_nothing(key: Any) -> bool:
    """Return whether a key matches no other one: None, or a list of which a part is None.

    Example:
        >>> matches_nothing(None), matches_nothing([1, None]), matches_nothing("ann")
        (True, True, False)
    """
    return key is None or (type(key) is list and None in key)


@dataclass(frozen=True)
class StreamJoin(MergeOperator):
    """Merges each left record at time t with all right records of its key that the sides reach.

    The second record of a pair, from either side, passes the pair on, with the later timestamp of both and without
    headers. A record of a side that `sides.how` names is passed on by itself when no match can come any more, if it had none:
    with its own timestamp and without headers. At the end of a bounded run, those without a match are passed on and
    forgotten.

    Attributes:
        sides: which right records are in [t - backward, t + forward], and what becomes of those without a match.
        store: the store of the records.
        grace_ms: how far a record may be behind the clock, in milliseconds.
        closing: the clock: that of a partition, or a watermark.

    Example:
        >>> from streamrt.joins.merging import merge_of
        >>> store = StoreSpec("join", transaction=TimedTransaction)
        >>> sides = Sides("left", merge_of("join", "raise"), 1_000, 500)
        >>> StreamJoin(sides, store, 60_000, Closing("partition")).describe()
        'left, -1000 ms to +500 ms'
    """

    name: ClassVar[str] = "join"
    by_key: ClassVar[bool] = True
    sides: Sides
    store: StoreSpec
    grace_ms: int
    closing: Closing

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        grace, by_partition = self.grace_ms, self.closing.by_partition
        sides = self.sides.both()
        left, right = (_Settled(side, other, grace, child) for side, other in (sides, sides[::-1]))

        def close(transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
            (left if is_left(key) else right).close(transaction, prefix, head, key, clock)

        def open_heads(transaction: TimedTransaction) -> Iterator[tuple[int, bytes, Any]]:
            yield from transaction.due(transaction.clock)
            for prefix, head in transaction.heads():
                side = left if is_left(transaction.key_of(prefix)) else right
                yield from side.unsettled(transaction, prefix, head)

        keyless = log_once("%s skips records without a key, or with a None in it: they match nothing", node)
        heads = DueHeads(self.store.name, close, self.closing, open_heads, ends=self.ends())
        clock = start_clock(self.store, grace, heads, node, context)
        admit, advance = clock.admit, clock.advance

        def handler(settled: _Settled) -> RecordHandler:
            """Return the closure of one side."""
            side = settled.side

            def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
                if matches_nothing(key):
                    keyless()
                    if side.passes_unmatched:
                        child(side.pair(value, None), key, timestamp, None)
                    return
                transaction = admit(value, key, timestamp, headers)
                if transaction is None:
                    return
                own, other = side.prefixes(transaction, key)
                # Make all outputs before storing anything: a merge that raises leaves the store unchanged.
                outputs = side.pairs(transaction, other, value, timestamp, 0)
                transaction.timelines.add(own, timestamp, value)
                now = max(transaction.clock, timestamp) if by_partition else transaction.clock
                settled.expect(transaction, own, timestamp, now - grace)
                advance(transaction, timestamp)
                for output, time in outputs:
                    child(output, key, time, None)

            return clock.wrap(run, node)

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

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:  # noqa: D102
        return self.closing.watermarks(self.store.name)

    def side_outputs(self) -> tuple[SideOutput, ...]:  # noqa: D102
        return (LATE,)

    @property
    def holds_back_ms(self) -> int | None:
        """A record without a match is passed on with its own timestamp when it is settled."""
        reach = [side.after for side in self.sides.both() if side.passes_unmatched]
        return max(reach) + self.grace_ms + 1 if reach else 0

    def resumes(self) -> bool:  # noqa: D102
        return True

    def ends(self) -> bool:
        """At the end, records that wait for a match are passed on."""
        return self.sides.how != "inner"

    def timed(self) -> bool:  # noqa: D102
        return self.closing.watermark is not None


class _Settled:
    """Settles the records of one side: passes on those without a match, and deletes those that nothing needs.

    Args:
        side: the side.
        other: the other side.
        grace_ms: how far a record may be behind the clock, in milliseconds.
        child: takes the records without a match.
    """

    def __init__(self, side: Side, other: Side, grace_ms: int, child: RecordHandler) -> None:
        self.side = side
        self._child = child
        # A record at t is settled at t + this.
        self._open_for = side.after + grace_ms + 1
        # A record at t is deleted after t + this. The other side needs it to match, and to know that it had a match.
        self._keep = side.after + grace_ms + (other.after if other.passes_unmatched else 0) + 1

    def expect(self, transaction: TimedTransaction, prefix: bytes, timestamp: int, oldest: int) -> None:
        """Set the deadline of a record that was added.

        Args:
            transaction: the running transaction.
            prefix: the key.
            timestamp: the record's time.
            oldest: no record before this time will be added any more.
        """
        head = transaction.head(prefix)
        deadline = timestamp + (self._open_for if self.side.passes_unmatched else self._keep + 1)
        if head is None:
            transaction.set_head(prefix, [max(oldest, 0), deadline, 0], deadline)
        elif self.side.passes_unmatched and deadline < head[1]:
            transaction.set_head(prefix, [head[0], deadline, head[2]], deadline)

    def close(self, transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
        """Settle the earliest records of a head that are due, which have one time, and delete what nothing needs.

        Args:
            transaction: the running transaction.
            prefix: the key.
            head: its head.
            key: the key of the store.
            clock: the time at which it is due. Later than stream time at the end of a bounded run: then only the records of
                that deadline are passed on, if they have no match, and forgotten.
        """
        timelines, record_key = transaction.timelines, record_key_of(key)
        pass_on = due(transaction.journal, self._pass_on)
        if clock > transaction.clock:
            time = clock - self._open_for
            if not self._has_match(transaction, key, time):
                for _, value in timelines.items(prefix, time, time + 1):
                    timelines.delete(prefix, time, time + 1, 1)
                    pass_on(value, record_key, time)
            return
        settled, _, passed = head
        earliest = timelines.first_time(prefix, settled) if self.side.passes_unmatched else None
        if earliest is not None and earliest + self._open_for <= clock:
            if not self._has_match(transaction, key, earliest):
                unmatched = timelines.items(prefix, earliest, earliest + 1)[passed:]
                for number, (_, value) in enumerate(unmatched, passed + 1):
                    # One at a time: if an operator below fails on a record, the next ones are still passed on.
                    transaction.set_head(prefix, [settled, clock, number], clock)
                    pass_on(value, record_key, earliest)
            settled = earliest + 1
        self._keep_head(transaction, prefix, settled, clock)

    def unsettled(self, transaction: TimedTransaction, prefix: bytes, head: Any) -> Iterator[tuple[int, bytes, Any]]:
        """Yield the deadlines of all records that are not settled, at the end of a bounded run."""
        if not self.side.passes_unmatched:
            return
        time = transaction.timelines.first_time(prefix, head[0])
        while time is not None:
            yield time + self._open_for, prefix, head
            time = transaction.timelines.first_time(prefix, time + 1)

    def _pass_on(self, value: Any, key: Any, timestamp: int) -> None:
        self._child(self.side.pair(deep_copy(value), None), key, timestamp, None)

    def _has_match(self, transaction: TimedTransaction, key: Any, time: int) -> bool:
        _, other = self.side.prefixes(transaction, record_key_of(key))
        first = transaction.timelines.first_time(other, max(time - self.side.before, 0))
        return first is not None and first <= time + self.side.after

    def _keep_head(self, transaction: TimedTransaction, prefix: bytes, settled: int, clock: int) -> None:
        deadline = delete_expired(transaction, prefix, self._keep, clock)
        if deadline is None:
            transaction.delete_head(prefix)
            return
        if self.side.passes_unmatched:
            following = transaction.timelines.first_time(prefix, settled)
            if following is not None:
                deadline = min(deadline, following + self._open_for)
        transaction.set_head(prefix, [settled, deadline, 0], deadline)
