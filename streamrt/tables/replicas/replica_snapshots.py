"""Snapshots of replicas in an object store: replicas upload them from time to time, and new replicas begin with them.

Their layout is that of snapshots of state, with the group `replica`. Files on the disk are in the directory of the replica::

    .snapshots/<topic>/<partition>/upload/      the files that are being uploaded
    .snapshots/<topic>/<partition>/download/    the files that are being downloaded
"""

import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamrt.state import Stamp, StoreIdentity
from streamrt.state.rocksdb.directory import escaped
from streamrt.state.snapshots import (
    RestoreInterrupted,
    SnapshotDownload,
    SnapshotManifest,
    SnapshotRepositories,
    SnapshotUploads,
    StateSnapshots,
)
from streamrt.tables.replicas.partition_rows import SKEW_MS, PartitionRows

__all__ = ["ReplicaSnapshots", "RowsChoice"]

logger = logging.getLogger("streamrt.tables")

_WAIT_S: Final = 0.2
"""How often the wait for a download checks whether the replica is closed, in seconds."""


@dataclass(frozen=True)
class RowsChoice:
    """Decides which snapshots a partition may begin with, by the rules for rows on the disk.

    Attributes:
        rows: the partition, which is not read yet.
        low: first offset of the topic's partition.
        high: offset after its last record.
        now_ms: wall clock when both were read, in milliseconds.
        longest_absence_ms: age in milliseconds from which on compaction may have removed deletes that were not seen.
    """

    rows: PartitionRows
    low: int
    high: int
    now_ms: int
    longest_absence_ms: int

    @property
    def after(self) -> int:
        """Offset at which the partition would be read without a snapshot."""
        return self.rows.position

    def refusal(self, stamp: Stamp) -> str:
        """Return why a snapshot with this stamp cannot be used; empty if it can be."""
        return self.rows.find_fault(stamp, self.low, self.high, self.now_ms, self.longest_absence_ms) or ""

    def is_of_lost_records(self, stamp: Stamp, created_at: int) -> bool:
        """Return whether the brokers have lost records that a snapshot contains; it would look right once others follow."""
        is_ahead = (stamp.changelog_offset or 0) > self.high
        return is_ahead and stamp.identity == self.rows.identity and created_at < self.now_ms - SKEW_MS


class ReplicaSnapshots:
    """Snapshots of the partitions of one replica: begins partitions with them, and takes new ones.

    Args:
        settings: where they are, and how often they are taken.
        directory: the directory of the replica.
    """

    def __init__(self, settings: StateSnapshots, directory: Path) -> None:
        self._settings = settings
        self._root = directory / ".snapshots"
        self._repositories = SnapshotRepositories(settings)
        # Other replicas have the same rows.
        self._uploads = SnapshotUploads(settings, self._repositories.find, _ignore_upload, shared=True)

    def is_worthwhile(self, rows: PartitionRows, high: int) -> bool:
        """Return whether a partition has so much to read that it looks for a snapshot.

        Args:
            rows: the partition.
            high: offset after its last record.
        """
        return _can_have_snapshots(rows) and high - rows.position >= self._settings.least_replay

    def begin(self, choice: RowsChoice, closing: threading.Event) -> None:
        """Begin a partition with the newest snapshot that fits, if there is one.

        Args:
            choice: the partition, and which snapshots fit.
            closing: ends it when it is set.

        Raises:
            StateError: if the files cannot be put in their place.
        """
        rows = choice.rows
        identity = rows.identity
        folder = self._folder(identity) / "download"
        download = SnapshotDownload(identity, lambda: self._repositories.find(identity), folder, choice)
        snapshot = None
        while not closing.is_set():
            try:
                snapshot = download.wait(choice, time.monotonic() + _WAIT_S, lambda share, offset: None)
                break
            except RestoreInterrupted:
                continue
        if closing.is_set():
            download.abandon()
        if snapshot is None:
            return
        try:
            is_adopted = rows.adopt(snapshot.folder, snapshot.manifest.stamp, choice.low, choice.now_ms)
        finally:
            snapshot.release()
        place = f"{identity.topic}[{identity.partition}]"
        if is_adopted:
            logger.info("The replica of %s begins with a snapshot, at offset %d", place, rows.position)
        else:
            logger.warning("A snapshot of the replica of %s is damaged, so all records are read", place)

    def offer(self, rows: PartitionRows) -> None:
        """Take a snapshot of a partition if it is due.

        Raises:
            StateError: if the store is damaged, or closed.
        """
        if _can_have_snapshots(rows):
            rows.offer(self._uploads, self._folder(rows.identity) / "upload")

    def _folder(self, identity: StoreIdentity) -> Path:
        return self._root / escaped(identity.topic) / str(identity.partition)


def _can_have_snapshots(rows: PartitionRows) -> bool:
    """Return whether the topic has an id: without one, rows of a topic that was created again could be taken for its own."""
    return rows.identity.changelog_id is not None


def _ignore_upload(identity: StoreIdentity, manifest: SnapshotManifest | None, sent: int) -> None:
    """Do nothing: replicas have no counters of uploads, which are logged."""
