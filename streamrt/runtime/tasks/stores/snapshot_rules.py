"""The rules by which a restore chooses a snapshot; a pure decision."""

from dataclasses import dataclass
from typing import Final

from streamrt.runtime.tasks.stores.changelog_restore import RestoreAction, plan_restore
from streamrt.state import Stamp, StoreIdentity

__all__ = ["ANY_OFFSET", "SnapshotRules"]

ANY_OFFSET: Final = 1 << 62
"""A committed offset that no state is ahead of, where the offset is not known."""

_SKEW_MS: Final = 60_000


@dataclass(frozen=True)
class SnapshotRules:
    """Which snapshots of a store partition a restore may use. They are those of a local store, see `plan_restore`.

    Attributes:
        identity: the required identity of the data.
        bounds: first offset and high watermark of the changelog partition.
        committed: committed input offset of the consumer group.
        transactional: whether commits are exactly-once.
        now: wall clock in milliseconds when `bounds` were read.
        longest_absence_ms: age in milliseconds from which on compaction may have removed tombstones.
        after: changelog offset from which the local store would be replayed; only newer snapshots help.

    Example:
        >>> mine = StoreIdentity("shop", "orders", 0, "default", None, "id", 1)
        >>> rules = SnapshotRules(mine, (0, 50), 12, True, 1_000, 60_000, 0)
        >>> rules.refusal(Stamp(mine, 12, 30, None, 900)), rules.refusal(Stamp(mine, 12, 90, None, 900))
        ('', 'it is at changelog offset 90, but the changelog ends at 50')
    """

    identity: StoreIdentity
    bounds: tuple[int, int]
    committed: int
    transactional: bool
    now: int
    longest_absence_ms: int
    after: int

    def refusal(self, stamp: Stamp) -> str:
        """Return why a snapshot with this stamp cannot be used; empty if it can be."""
        plan = plan_restore(
            stamp,
            self.identity,
            self.bounds,
            self.committed,
            transactional=self.transactional,
            now=self.now,
            longest_absence_ms=self.longest_absence_ms,
        )
        return plan.reason if plan.action is RestoreAction.WIPE else ""

    def is_of_lost_records(self, stamp: Stamp, created_at: int) -> bool:
        """Return whether the brokers have lost changelog records that a snapshot contains.

        Once the changelog has grown past it, the snapshot would look valid.

        Args:
            stamp: its stamp.
            created_at: wall clock of the snapshot, in milliseconds. One that is newer than `bounds` proves nothing.
        """
        # A stamp counts the marker of the last transaction, which may not be written yet.
        ahead = (stamp.changelog_offset or 0) > self.bounds[1] + 1
        return ahead and stamp.identity == self.identity and created_at < self.now - _SKEW_MS
