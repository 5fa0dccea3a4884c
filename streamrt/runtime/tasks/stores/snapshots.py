"""The snapshots of the stores of one process.

On the disk, below the directory of the stores::

    .snapshots/<store partition>/upload/taken          its time of change is that of the last snapshot
    .snapshots/<store partition>/upload/checkpoint/    the files that are being uploaded
    .snapshots/<store partition>/download/<manifest>/  the files that are being downloaded

The process that takes or downloads a snapshot holds a lock on `upload` or `download`: in the next micro-batch, another Python
worker may have the partition.
"""

import contextlib
import hashlib
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from streamrt.common.file_lock import FileLock
from streamrt.runtime.tasks.stores.snapshot_rules import SnapshotRules
from streamrt.state import StoreIdentity, StorePartition
from streamrt.state.snapshots import (
    FoundSnapshot,
    SnapshotDownload,
    SnapshotManifest,
    SnapshotRepositories,
    SnapshotUploads,
    StateSnapshots,
)
from streamrt.topology import Tally, add_tallies
from streamrt.topology.tallies import (
    CHANGELOG_RESTORES,
    SNAPSHOT_BYTES,
    SNAPSHOT_FAILURES,
    SNAPSHOT_RESTORES,
    SNAPSHOT_UPLOADS,
)

__all__ = ["SnapshotAge", "Snapshots"]

_FOLDER: Final = ".snapshots"
_SETTLED_S: Final = 600.0
"""How long the slices of one restore do not look for another snapshot."""


class SnapshotAge(NamedTuple):
    """The newest snapshot of a store partition that this process knows.

    Attributes:
        created_at: wall clock of the snapshot, in milliseconds.
        size: size of its files in bytes.
    """

    created_at: int
    size: int


class Snapshots:
    """Takes snapshots of stores, uploads them in the background, and finds them for restores.

    Args:
        settings: where they are, and how often they are taken.
        base_dir: directory of the stores of the process.

    Attributes:
        least_replay: number of changelog offsets from which on a restore asks for a snapshot.
    """

    def __init__(self, settings: StateSnapshots, base_dir: Path) -> None:
        self.least_replay = settings.least_replay
        self._settings = settings
        self._root = base_dir / _FOLDER
        self._repositories = SnapshotRepositories(settings)
        self._downloads: dict[StoreIdentity, SnapshotDownload] = {}
        self._settled: dict[StoreIdentity, tuple[float, int]] = {}
        self._newest: dict[StoreIdentity, SnapshotAge] = {}
        self._tallies: dict[Tally, float] = {}
        # Guards what the threads of uploads and downloads count and note.
        self._lock = threading.Lock()
        self._uploads: SnapshotUploads | None = None

    def offer(self, identity: StoreIdentity, partition: StorePartition, *, after_commit: bool = True) -> None:
        """Take a snapshot if it is due. Call this after each commit, once its changes are in the store.

        Args:
            identity: the identity of the store partition.
            partition: the store partition.
            after_commit: False for calls in between, for commits that were not followed by others.
        """
        if self._uploads is None:
            self._delete_leftovers()
            self._uploads = SnapshotUploads(self._settings, self._repositories.find, self._note_upload)
        folder = self._folder(identity) / "upload"
        self._uploads.offer(identity, partition, folder, after_commit=after_commit)

    def can_find(self, identity: StoreIdentity) -> bool:
        """Return whether no other download of this process is going on: standbys download one after the other."""
        # A task that was revoked during its restore has left its download here.
        return all(each == identity or download.ended for each, download in self._downloads.items())

    def abandon(self, identity: StoreIdentity) -> None:
        """Wait for no download of a snapshot any more. Files that are complete stay for the next one."""
        download = self._downloads.pop(identity, None)
        if download is not None:
            download.abandon()

    def find(
        self,
        identity: StoreIdentity,
        rules: SnapshotRules,
        deadline: float | None,
        on_progress: Callable[[float, int], None],
    ) -> FoundSnapshot | None:
        """Download the newest snapshot that fits; the caller releases it after use.

        Args:
            identity: the identity of the store partition.
            rules: which snapshots fit.
            deadline: value of `time.monotonic()` at which to interrupt the download; the next call goes on with it.
            on_progress: called with the downloaded share of the files, and the changelog offset of the snapshot.

        Returns:
            None if there is no such snapshot, or the object store does not answer.

        Raises:
            RestoreInterrupted: at the deadline.
        """
        settled_at, settled_after = self._settled.get(identity, (float("-inf"), 0))
        if rules.after > settled_after and time.monotonic() - settled_at < _SETTLED_S:
            # The same restore goes on.
            return None
        download = self._downloads.get(identity)
        if download is None:
            folder = self._folder(identity) / "download"
            download = SnapshotDownload(identity, lambda: self._repositories.find(identity), folder, rules)
            self._downloads[identity] = download
        found = download.wait(rules, deadline, on_progress)
        # Only now: an interruption leaves it here.
        del self._downloads[identity]
        self._settled[identity] = time.monotonic(), rules.after
        if found is not None:
            self._note_newest(identity, found.manifest)
        elif download.failed:
            self._count(SNAPSHOT_FAILURES, identity, 1)
        return found

    def note_restore(self, identity: StoreIdentity, *, from_snapshot: bool) -> None:
        """Count a complete restore of a store."""
        self._count(SNAPSHOT_RESTORES if from_snapshot else CHANGELOG_RESTORES, identity, 1)

    def newest(self, identity: StoreIdentity) -> SnapshotAge | None:
        """Return the newest snapshot of a store partition that this process has uploaded or restored."""
        with self._lock:
            return self._newest.get(identity)

    def take_tallies(self) -> dict[Tally, float]:
        """Return what was counted since the last call."""
        with self._lock:
            found, self._tallies = self._tallies, {}
        return found

    def _folder(self, identity: StoreIdentity) -> Path:
        name = "\0".join((identity.topic, identity.store, str(identity.partition)))
        return self._root / hashlib.sha256(name.encode()).hexdigest()[:32]

    def _note_upload(self, identity: StoreIdentity, manifest: SnapshotManifest | None, sent: int) -> None:
        if manifest is None:
            self._count(SNAPSHOT_FAILURES, identity, 1)
            return
        self._count(SNAPSHOT_UPLOADS, identity, 1)
        self._count(SNAPSHOT_BYTES, identity, sent)
        self._note_newest(identity, manifest)

    def _note_newest(self, identity: StoreIdentity, manifest: SnapshotManifest) -> None:
        with self._lock:
            self._newest[identity] = SnapshotAge(manifest.created_at, manifest.size)

    def _count(self, kind: str, identity: StoreIdentity, number: int) -> None:
        with self._lock:
            add_tallies(self._tallies, {Tally(kind, identity.topic, identity.store): number})

    def _delete_leftovers(self) -> None:
        """Delete files that killed processes have left: checkpoints keep data files that stores have replaced."""
        for folder in self._root.glob("*/*"):
            with contextlib.suppress(OSError):
                lock = FileLock.try_acquire(folder, 0)
                if lock is not None:
                    with lock:
                        for path in filter(Path.is_dir, folder.iterdir()):
                            shutil.rmtree(path, ignore_errors=True)
