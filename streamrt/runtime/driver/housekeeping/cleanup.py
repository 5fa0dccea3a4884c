"""Deletes files of store partitions that are unused for long, because the partition moved or the store was removed.

Stores that a changelog can restore may be deleted; an early deletion only costs a restore. A store partition is kept if
it

- has no changelog, according to its stamp, or cannot be read;
- is locked by a process or task that uses it;
- belongs to a partition that this process owns;
- was opened or closed within the delay.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from streamrt.errors import StateError
from streamrt.records import TopicPartition
from streamrt.runtime.driver.housekeeping.state_directory import StateDirectory, free_parts
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.state.rocksdb import delete_restorable
from streamrt.state.rocksdb.directory import SEAL, escaped

__all__ = ["StoreCleanup"]

logger = logging.getLogger("streamrt")

_FIRST_S = 600.0
"""By then, a new process has opened the stores that it needs."""
_EVERY_S = 3_600.0


class StoreCleanup:
    """Deletes unused stores in the background while an application runs.

    Args:
        part: the part of the state directory that this process has locked.
        delay_s: seconds after which unused stores are deleted; None or 0 for never.
        progress: knows the input partitions that this process owns.
        now: returns the wall clock, in seconds since the Unix epoch.
    """

    def __init__(
        self,
        part: StateDirectory | None,
        delay_s: float | None,
        progress: Progress,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._part = part
        self._delay_s = delay_s or 0.0
        self._progress = progress
        self._now = now
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run_rounds, name="streamrt-cleanup", daemon=True)

    def __enter__(self) -> "StoreCleanup":
        if self._part is not None and self._delay_s > 0:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _run_rounds(self) -> None:
        pause_s = _FIRST_S
        while not self._ended.wait(pause_s):
            pause_s = _EVERY_S
            try:
                self.clean()
            except Exception as error:  # noqa: BLE001 - a failed cleanup must not end the application
                logger.warning("unused stores could not be deleted: %s; the next cleanup retries", error)

    def clean(self) -> list[Path]:
        """Delete the stores that are unused now; return their directories."""
        if self._part is None or self._delay_s <= 0:
            return []
        own = self._part.path
        deleted = [
            path for path in self._find_unused(own, self._progress.snapshot().positions) if self._delete_directory(path)
        ]
        for part in free_parts(own.parent, lambda part: bool(self._find_unused(part, ()))):
            deleted += [path for path in self._find_unused(part, ()) if self._delete_directory(path)]
        return deleted

    def _find_unused(self, part: Path, in_use: Collection[TopicPartition]) -> list[Path]:
        """Return the directories of store partitions that were not opened or closed within the delay."""
        needed = {(escaped(partition.topic), str(partition.partition)) for partition in in_use}
        # A store of merged topics is named after all of them.
        numbers = {str(partition.partition) for partition in in_use}
        return [
            path
            for path in sorted(part.glob("*/*/[0-9]*"))
            if path.is_dir() and not path.is_symlink() and self._unused_s(path) >= self._delay_s
            if (path.parts[-3], path.name) not in needed and not ("--" in path.parts[-3] and path.name in numbers)
        ]

    def _unused_s(self, path: Path) -> float:
        times = [each.stat().st_mtime for each in (path / SEAL, path) if each.exists()]
        return self._now() - max(times, default=self._now())

    def _delete_directory(self, path: Path) -> bool:
        unused_s = self._unused_s(path)
        try:
            if not delete_restorable(path):
                return False
        except StateError as error:
            logger.debug("unused store %s is kept: %s", path, error)
            return False
        for parent in path.parents[:2]:
            with contextlib.suppress(OSError):
                parent.rmdir()
        logger.info(
            "deleted store %s, unused for %.1f days (state_cleanup_delay); its changelog can restore it",
            path,
            unused_s / 86_400,
        )
        return True
