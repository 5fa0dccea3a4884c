"""Directories for data that must not outlive a process: secrets for its tasks, checkpoints, sockets.

A killed process removes nothing. Each process therefore locks its directory, and later processes remove directories
that are not locked.
"""

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path

from streamrt.common.file_lock import FileLock

__all__ = ["make_runtime_dir", "remove_runtime_dir"]

_MEMORY = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a private directory in it
_PREFIX = "streamrt-"
_OWNER = "owner"
_NAME = re.compile(rf"\.?{_PREFIX}[a-z0-9_]{{8}}")
_UNOWNED_S = 60.0

_locks: dict[Path, FileLock] = {}


def make_runtime_dir(parent: Path | None = None) -> Path:
    """Make a directory that only this user can access, and remove those of this user's dead processes.

    Args:
        parent: parent directory; by default in memory if possible, because checkpoints are small and short-lived.
    """
    chosen = parent or (_MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir()))
    # With a dot: of a process that was killed before its directory had its name.
    for left in [*chosen.glob(f"{_PREFIX}*"), *chosen.glob(f".{_PREFIX}*")]:
        with contextlib.suppress(OSError):
            _remove_if_dead(left)
    # Others see it under its final name only when it is locked.
    new = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=chosen))
    lock = FileLock.acquire(new / _OWNER)
    path = new.rename(chosen / new.name[1:])
    _locks[path] = lock
    return path


def remove_runtime_dir(path: Path) -> None:
    """Remove a directory of this process."""
    shutil.rmtree(path, ignore_errors=True)
    lock = _locks.pop(path, None)
    if lock is not None:
        lock.close()


def _remove_if_dead(path: Path) -> None:
    found = path.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        return
    if not (path / _OWNER).exists():
        # It was being made, or being removed, when its process was killed; or it is being made now.
        if _NAME.fullmatch(path.name) and time.time() - found.st_mtime > _UNOWNED_S:
            shutil.rmtree(path, ignore_errors=True)
        return
    lock = FileLock.try_acquire(path / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
    # A living process has its lock.
    if lock is not None:
        with lock:
            shutil.rmtree(path, ignore_errors=True)
