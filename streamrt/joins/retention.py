"""Retention of joins: records are kept for a grace period of stream time.

A record is kept while its timestamp is not more than the grace period behind stream time, the highest timestamp of any
record of the partition in the join. As-of joins also keep the last record before that. Only timestamps decide whether
a record still counts, so results do not depend on when it is deleted. The head of a key has a later deadline, at which
all its expired records are deleted together.
"""

from itertools import islice

from streamrt.state.transactions.timed import TimedTransaction

_SHARE = 8
# Limits of keys and items that one record deletes, so that no record takes long after a jump of stream time. The rest
# changes no result, so later records can continue the deletion.
_KEYS_AT_ONCE = 1_000
_ITEMS_AT_ONCE = 10_000


class Retention:
    """Keeps items for a grace period, and deletes them afterwards.

    Args:
        grace_ms: the grace period in milliseconds.
        in_force: whether to keep the last item before the grace period too, because it is valid until the next one. An
            item with the value None is not kept: then no item is valid.
    """

    def __init__(self, grace_ms: int, *, in_force: bool = False) -> None:
        self.grace_ms = grace_ms
        self._in_force = in_force
        # A key with frequent records is checked at this interval, and not for each record.
        self._pause_ms = grace_ms // _SHARE + 1

    def keep(self, transaction: TimedTransaction, prefix: bytes, timestamp: int) -> None:
        """Schedule the deletion of an item that was added."""
        if transaction.head(prefix) is None:
            transaction.set_head(prefix, 1, timestamp + self.grace_ms + 1)

    def advance(self, transaction: TimedTransaction, timestamp: int) -> None:
        """Advance stream time, and delete expired items."""
        transaction.advance(timestamp)
        if timestamp >= transaction.due_from:
            self._expire_items(transaction, timestamp)

    def _expire_items(self, transaction: TimedTransaction, now: int) -> None:
        oldest = now - self.grace_ms
        most = _ITEMS_AT_ONCE
        for _, prefix, _ in islice(transaction.due(now), _KEYS_AT_ONCE):
            if oldest > 0:
                most -= transaction.timelines.delete(prefix, 0, self._first_kept(transaction, prefix, oldest), most)
                if most <= 0:
                    # This key may have more expired items.
                    transaction.set_head(prefix, 1, now + 1)
                    break
            # No item is later than stream time.
            newest = transaction.timelines.latest(prefix, now)
            if newest is None or (self._in_force and newest[0] <= oldest):
                transaction.delete_head(prefix)
            else:
                transaction.set_head(prefix, 1, min(newest[0] + self.grace_ms, now + self._pause_ms) + 1)

    def _first_kept(self, transaction: TimedTransaction, prefix: bytes, oldest: int) -> int:
        last = transaction.timelines.latest(prefix, oldest) if self._in_force else None
        if last is None:
            return oldest
        return last[0] if last[1] is not None else last[0] + 1
