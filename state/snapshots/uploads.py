"""Takes snapshots of the stores of one process, and uploads them in one thread, one after the other."""

import logging
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from streamrt.common.file_lock import FileLock
from streamrt.errors import StateError
from streamrt.secret import masked
from streamrt.state.identity import Stamp, StoreIdentity
from streamrt.state.rocksdb.directory import make_private
from streamrt.state.snapshots.manifest import SnapshotManifest, UnusableSnapshotError
from streamrt.state.snapshots.repository import SnapshotRepository
from streamrt.state.snapshots.settings import StateSnapshots
from streamrt.state.store import StorePartition

__all__ = ["SnapshotUploads"]

logger = logging.getLogger("streamrt")

_RETRY_LOCK_S = 1.0


@dataclass
class _Schedule:
    """When a store partition has its next snapshot."""

    due_at: float
    commits: int = 0
    taken: Stamp | None = None


class _Upload(NamedTuple):
    """A checkpoint that waits for its upload."""

    identity: StoreIdentity
    stamp: Stamp
    created_at: int
    folder: Path
    lock: FileLock


class SnapshotUploads:
    """Takes snapshots that are due, and uploads them.

    Args:
        settings: how often, and how many are kept.
        repository: returns the repository of a store partition.
        on_end: called in the thread of uploads with each manifest and the bytes sent, or None after a failure.
        shared: whether other processes take snapshots of the same data: one of them in each interval is enough.
    """

    def __init__(
        self,
        settings: StateSnapshots,
        repository: Callable[[StoreIdentity], SnapshotRepository],
        on_end: Callable[[StoreIdentity, SnapshotManifest | None, int], None],
        *,
        shared: bool = False,
    ) -> None:
        self._settings = settings
        self._repository = repository
        self._on_end = on_end
        self._shared = shared
        self._schedules: dict[StoreIdentity, _Schedule] = {}
        self._waiting: queue.SimpleQueue[_Upload] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._failing = False

    def offer(
        self, identity: StoreIdentity, partition: StorePartition, folder: Path, *, after_commit: bool = True
    ) -> None:
        """Take a snapshot of a store partition if it is due, unless the last one is still being uploaded.

        Args:
            identity: its identity.
            partition: the store partition, which contains nothing but commits.
            folder: the local folder for its uploads.
            after_commit: whether this follows a commit; otherwise the last commit of this process has no snapshot.
        """
        now, stamp = time.monotonic(), partition.stamp
        schedule = self._schedules.get(identity)
        if schedule is None:
            if not after_commit:
                return
            schedule = self._schedules[identity] = _Schedule(now + self._pause_s(folder / "taken"))
        schedule.commits += after_commit
        by_commits = 0 < self._settings.commits <= schedule.commits
        if stamp is None or stamp.changelog_offset is None or not (by_commits or now >= schedule.due_at):
            return
        if stamp == schedule.taken:
            return
        try:
            lock = self._take(partition, folder)
        except (OSError, StateError) as error:
            self._note_failure(identity, error)
        else:
            if lock is None:
                schedule.due_at = max(schedule.due_at, now + _RETRY_LOCK_S)
                return
            created_at = time.time_ns() // 1_000_000
            schedule.taken = stamp
            self._waiting.put(_Upload(identity, stamp, created_at, folder / "checkpoint", lock))
            self._start_thread()
        schedule.due_at, schedule.commits = now + self._settings.interval_s, 0

    def _pause_s(self, taken: Path) -> float:
        """Return the seconds until the next snapshot, since other processes may have taken the last one."""
        try:
            return self._settings.interval_s - max(0.0, time.time() - taken.stat().st_mtime)
        except FileNotFoundError:
            return 0.0

    @staticmethod
    def _take(partition: StorePartition, folder: Path) -> FileLock | None:
        """Write a checkpoint; return the lock on its folder, or None if there is none to upload."""
        make_private(folder)
        lock = FileLock.try_acquire(folder, os.O_RDONLY | os.O_DIRECTORY)
        if lock is None:
            return None
        try:
            checkpoint = folder / "checkpoint"
            shutil.rmtree(checkpoint, ignore_errors=True)
            if partition.checkpoint(checkpoint):
                (folder / "taken").touch(mode=0o600)
                return lock
        except BaseException:
            lock.release()
            raise
        lock.release()
        return None

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._upload_all, name="streamrt-snapshots", daemon=True)
            self._thread.start()

    def _upload_all(self) -> None:
        while True:
            upload = self._waiting.get()
            try:
                self._upload(upload)
            except Exception as error:  # noqa: BLE001 - object stores have exceptions of their own, and none may end uploads
                self._note_failure(upload.identity, error)
            finally:
                shutil.rmtree(upload.folder, ignore_errors=True)
                upload.lock.release()

    def _upload(self, upload: _Upload) -> None:
        begun, identity = time.monotonic(), upload.identity
        repository = self._repository(identity)
        if self._shared and self._has_recent(repository, upload.created_at):
            # It may lack what this one has, and nothing else may change: the next interval has another one.
            self._schedules[identity].taken = None
            return
        manifest, sent = repository.upload(upload.folder, upload.stamp, upload.created_at)
        self._on_end(identity, manifest, sent)
        logger.log(
            logging.INFO if self._failing else logging.DEBUG,
            "uploaded the snapshot of store %r of %s[%d] at changelog offset %d: %.1f of %.1f MB sent in %.1f s",
            identity.store,
            identity.topic,
            identity.partition,
            upload.stamp.changelog_offset,
            sent / 1e6,
            manifest.size / 1e6,
            time.monotonic() - begun,
        )
        self._failing = False
        repository.collect(self._settings.keep)

    def _has_recent(self, repository: SnapshotRepository, now_ms: int) -> bool:
        """Return whether the newest snapshot is of this interval."""
        for name in repository.names()[:1]:
            try:
                return repository.read(name).created_at > now_ms - self._settings.interval_s * 1_000
            except UnusableSnapshotError:
                return False
        return False

    def _note_failure(self, identity: StoreIdentity, error: Exception) -> None:
        logger.log(
            logging.DEBUG if self._failing else logging.WARNING,
            "no snapshot of store %r of %s[%d]: %s; processing goes on, and the next snapshot is tried in %g s",
            identity.store,
            identity.topic,
            identity.partition,
            masked(str(error) or type(error).__name__),
            self._settings.interval_s,
        )
        self._failing = True
        self._on_end(identity, None, 0)
