"""The search for the newest snapshot that fits, and its download, in a thread: a restore has a deadline."""

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from streamrt.common.file_lock import FileLock
from streamrt.secret import masked
from streamrt.state.identity import Stamp, StoreIdentity
from streamrt.state.rocksdb.directory import make_private
from streamrt.state.snapshots.manifest import SnapshotManifest, UnusableSnapshotError
from streamrt.state.snapshots.repository import SnapshotRepository

__all__ = ["FoundSnapshot", "RestoreInterrupted", "SnapshotChoice", "SnapshotDownload"]

logger = logging.getLogger("streamrt")

_PATIENCE_S: Final = 60.0
"""How long a restore waits for the next bytes."""
_POLL_S: Final = 0.05
_PAUSES_S: Final = (0.5, 2.0)
"""Pauses before the attempts after an error of the object store."""


class RestoreInterrupted(Exception):  # noqa: N818 - control flow
    """The time for a restore is over; the next restore continues from there."""


class SnapshotChoice(Protocol):
    """Which snapshots of a store partition fit."""

    @property
    def after(self) -> int:
        """Offset of Kafka's records from which the local store would be replayed; only newer snapshots help."""

    def refusal(self, stamp: Stamp) -> str:
        """Return why a snapshot with this stamp cannot be used; empty if it can be."""

    def is_of_lost_records(self, stamp: Stamp, created_at: int) -> bool:
        """Return whether the brokers have lost records that a snapshot contains."""


class _AbandonedError(Exception):
    """The restore no longer waits for the download."""


@dataclass(frozen=True)
class FoundSnapshot:
    """A downloaded snapshot, each file of which has its digest.

    Attributes:
        manifest: its description.
        folder: its files.
        lock: keeps other processes out of the folder.
    """

    manifest: SnapshotManifest
    folder: Path
    lock: FileLock

    def release(self) -> None:
        """Delete what is left of the files."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.release()


class SnapshotDownload:
    """Finds and downloads the newest snapshot of a store partition that fits.

    Args:
        identity: the store partition.
        repository: returns its repository; called in the thread.
        folder: the local folder for its downloads.
        rules: which snapshots fit.

    Attributes:
        failed: whether the object store failed.
    """

    def __init__(
        self,
        identity: StoreIdentity,
        repository: Callable[[], SnapshotRepository],
        folder: Path,
        rules: SnapshotChoice,
    ) -> None:
        self.failed = False
        self._name = f"store {identity.store!r} of {identity.topic}[{identity.partition}]"
        self._repository = repository
        self._folder = folder
        self._rules = rules
        self._manifest: SnapshotManifest | None = None
        self._bytes = 0
        self._moved_at = time.monotonic()
        self._files = folder
        self._found: SnapshotManifest | None = None
        self._error: Exception | None = None
        self._ended, self._abandoned = threading.Event(), threading.Event()
        threading.Thread(target=self._run, name="streamrt-snapshot-restore", daemon=True).start()

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self._ended.is_set()

    def abandon(self) -> None:
        """End the download soon."""
        self._abandoned.set()

    def wait(
        self, rules: SnapshotChoice, deadline: float | None, on_progress: Callable[[float, int], None]
    ) -> FoundSnapshot | None:
        """Wait for the end.

        Args:
            rules: which snapshots fit now; the changelog may have changed since the start.
            deadline: value of `time.monotonic()` at which to stop waiting.
            on_progress: called with the downloaded share, and the changelog offset of the snapshot.

        Returns:
            The snapshot; None if there is none, or if the object store fails or is silent for too long.

        Raises:
            RestoreInterrupted: at the deadline.
        """
        while True:
            if self._ended.wait(_POLL_S if deadline is None else min(_POLL_S, max(0.0, deadline - time.monotonic()))):
                if self._found is None:
                    break
                # Another process may use the files meanwhile, or have taken them.
                lock = self._try_lock()
                if lock is not None:
                    return self._accept(self._found, lock, rules)
            manifest, now = self._manifest, time.monotonic()
            if manifest is not None:
                on_progress(self._bytes / max(1, manifest.size), manifest.stamp.changelog_offset or 0)
            if now - self._moved_at > _PATIENCE_S:
                self._abandoned.set()
                self._error = TimeoutError(f"no answer for {_PATIENCE_S:g} s")
                break
            if deadline is not None and now >= deadline:
                raise RestoreInterrupted
        if self._error is not None:
            self.failed = True
            reason = masked(str(self._error) or type(self._error).__name__)
            logger.warning("%s has no snapshot: %s; all of its records are read from Kafka", self._name, reason)
        return None

    def _accept(self, manifest: SnapshotManifest, lock: FileLock, rules: SnapshotChoice) -> FoundSnapshot | None:
        """Return the downloaded snapshot, unless it does not fit any more."""
        found = FoundSnapshot(manifest, self._files, lock)
        reason = rules.refusal(manifest.stamp)
        if not all((self._files / name).is_file() for name in manifest.files):
            reason = "another process has taken its files"
        elif (manifest.stamp.changelog_offset or 0) <= rules.after:
            reason = "the store has more meanwhile"
        if not reason:
            return found
        found.release()
        logger.warning("a snapshot of %s is passed over: %s", self._name, reason)
        return None

    def _run(self) -> None:
        try:
            with self._acquire_lock():
                for pause_s in (*_PAUSES_S, None):
                    try:
                        self._find(self._repository())
                        return
                    except _AbandonedError:
                        raise
                    except Exception:
                        # Object stores have exceptions of their own. Files that are here stay.
                        if pause_s is None or self._abandoned.wait(pause_s):
                            raise
        except _AbandonedError:
            pass
        except Exception as error:  # noqa: BLE001 - `wait` reports it
            self._error = error
        finally:
            self._ended.set()

    def _acquire_lock(self) -> FileLock:
        """Wait while another process downloads a snapshot of this store, as long as it gets on."""
        make_private(self._folder)
        before = -1
        while (lock := self._try_lock()) is None:
            # The other process renames and deletes files meanwhile.
            with contextlib.suppress(OSError):
                size = sum(path.stat().st_size for path in self._folder.glob("*/*"))
                self._note_bytes(0 if size != before else None)
                before = size
            time.sleep(_POLL_S)
        return lock

    def _try_lock(self) -> FileLock | None:
        return FileLock.try_acquire(self._folder, os.O_RDONLY | os.O_DIRECTORY)

    def _find(self, repository: SnapshotRepository) -> None:
        for name in repository.names():
            self._note_bytes(0)
            try:
                manifest = repository.read(name)
                if (manifest.stamp.changelog_offset or 0) <= self._rules.after:
                    return
                reason = self._rules.refusal(manifest.stamp)
                if self._rules.is_of_lost_records(manifest.stamp, manifest.created_at):
                    repository.withdraw(name)
                    reason += "; the brokers have lost its records, so it is deleted"
                if reason:
                    raise UnusableSnapshotError(reason)
                self._files = self._make_folder(name)
                self._bytes, self._manifest = 0, manifest
                repository.download(manifest, self._files, self._note_bytes)
            except UnusableSnapshotError as error:
                logger.warning("snapshot %s of %s is passed over: %s", name, self._name, error)
                continue
            self._found = manifest
            return

    def _make_folder(self, name: str) -> Path:
        """Return the folder for the files of a snapshot, and delete those of other snapshots."""
        for path in self._folder.iterdir():
            if path.name != name:
                shutil.rmtree(path, ignore_errors=True)
        folder = self._folder / name
        make_private(folder)
        return folder

    def _note_bytes(self, number: int | None) -> None:
        """Note progress; None for none."""
        if self._abandoned.is_set():
            raise _AbandonedError
        if number is not None:
            self._bytes += number
            self._moved_at = time.monotonic()
