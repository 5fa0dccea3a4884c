"""A store partition that a task uses, and the progress of its restore."""

from collections.abc import Sequence
from dataclasses import dataclass

from streamrt.records import TopicPartition
from streamrt.runtime.placement import StorePlacement
from streamrt.state import StoreIdentity, StorePartition
from streamrt.state.base import Transaction
from streamrt.state.snapshots import RestoreInterrupted

__all__ = ["OpenStore", "RestoreInterrupted", "RestoreProgress"]

_FOR_EVER_MS = 1 << 62


@dataclass
class RestoreProgress:
    """The progress of the restore of one store partition.

    Attributes:
        done: changelog offsets replayed.
        total: total changelog offsets to replay.
        records: records applied.
    """

    done: int
    total: int
    records: int = 0


@dataclass
class OpenStore:
    """A store partition in use."""

    placement: StorePlacement
    identity: StoreIdentity
    partition: StorePartition
    transaction: Transaction
    changelog: TopicPartition | None
    changelog_end: int
    epoch: bytes | None
    """With at-least-once, the epoch of written records; with exactly-once, the highest one in the changelog."""
    changes: int = 0
    """Number of changelog offsets of the current commit."""
    prepared: Sequence[tuple[bytes, bytes | None]] = ()
    position: bytes = b""
    flushed_at: int = 0
    """Wall clock, in milliseconds, of the newest stamp that survives a crash."""
    held_back_since: int | None = None
    """Wall clock, in milliseconds, of the oldest commit that would not survive a crash."""

    @property
    def patience_ms(self) -> int:
        """Maximum age of the stamp on disk before a commit is flushed at once, in milliseconds.

        A store whose stamp is behind the changelog and older than the longest absence is restored completely. A quarter
        of that time leaves room for real absences.
        """
        return (
            _FOR_EVER_MS
            if self.placement.changelog is None
            else max(1_000, self.placement.changelog.longest_absence_ms // 4)
        )
