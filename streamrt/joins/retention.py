"""How long joins keep records: for a grace of stream time.

A record is kept while its timestamp is not more than the grace behind stream time, the highest timestamp that any record of
the partition brought to the join; where the record in force counts, so is the last one before. Whether a record still
counts is decided by timestamps alone, so results do not depend on when it is deleted. It is deleted some time later: the head
of a key has a deadline, at which all that is too old is deleted at once.
"""

from itertools import islice

from streamrt.state import TimedTransaction

_SHARE = 8
# One record deletes for so many keys, and so many items, at most, so that none takes long after a jump of stream time. Nobody
# needs to wait for the rest, since it changes no result: later records go on with it.
_KEYS_AT_ONCE = 1_000
_ITEMS_AT_ONCE = 10_000


class Retention:
    """Keeps items for a grace, and gives them back afterwards.

    Args:
        grace_ms: the grace in milliseconds.
        in_force: whether the last item before the grace is kept as well, as it holds until the next one. If its value is
            None, nothing is in force, and it is not.
    """

    def __init__(self, grace_ms: int, *, in_force: bool = False) -> None:
        self.grace_ms = grace_ms
        self._in_force = in_force
        # A key that gets records all the time is looked at so often, and not for each of them.
        self._pause_ms = grace_ms // _SHARE + 1

    def keep(self, transaction: TimedTransaction, prefix: bytes, timestamp: int) -> None:
        """See to it that an item that was added is deleted one day."""
        if transaction.head(prefix) is None:
            transaction.set_head(prefix, 1, timestamp + self.grace_ms + 1)

    def advance(self, transaction: TimedTransaction, timestamp: int) -> None:
        """Move stream time on, and delete what is too old then."""
        transaction.advance(timestamp)
        if timestamp >= transaction.due_from:
            self._expire(transaction, timestamp)

    def _expire(self, transaction: TimedTransaction, now: int) -> None:
        oldest = now - self.grace_ms
        most = _ITEMS_AT_ONCE
        for _, prefix, _ in islice(transaction.due(now), _KEYS_AT_ONCE):
            if oldest > 0:
                most -= transaction.delete_items(prefix, 0, self._first_kept(transaction, prefix, oldest), most)
                if most <= 0:
                    # This key may have more of them.
                    transaction.set_head(prefix, 1, now + 1)
                    break
            # No item is later than stream time.
            newest = transaction.latest_item(prefix, now)
            if newest is None or (self._in_force and newest[0] <= oldest):
                transaction.delete_head(prefix)
            else:
                transaction.set_head(prefix, 1, min(newest[0] + self.grace_ms, now + self._pause_ms) + 1)

    def _first_kept(self, transaction: TimedTransaction, prefix: bytes, oldest: int) -> int:
        last = transaction.latest_item(prefix, oldest) if self._in_force else None
        if last is None:
            return oldest
        return last[0] if last[1] is not None else last[0] + 1
