"""Locks on files and directories, between processes."""

import fcntl
import os
from pathlib import Path
from typing import Any

from typing_extensions import Self

__all__ = ["FileLock"]

_FLAGS = os.O_RDWR | os.O_CREAT


class FileLock:
    """An exclusive lock (`flock`) on a file or a directory; a killed process releases its locks.

    The lock belongs to the opened file. Two locks on one path also exclude each other within a process, and a process
    that inherits the descriptor has the lock as well.

    Args:
        descriptor: descriptor of the opened and locked file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "owner")
        >>> with FileLock.acquire(path):
        ...     print(FileLock.try_acquire(path))
        None
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, path: Path, flags: int = _FLAGS, mode: int = 0o600) -> Self:
        """Open and lock a file; wait while another owner has the lock.

        Args:
            path: the file or directory.
            flags: flags of `os.open`; by default, a missing file is created. The descriptor is not inherited by programs
                that this process starts, unless it is passed on.
            mode: permissions of a new file.

        Raises:
            OSError: if the file cannot be opened or locked.
        """
        return cls(_open_locked(path, flags, mode, fcntl.LOCK_EX))

    @classmethod
    def try_acquire(cls, path: Path, flags: int = _FLAGS, mode: int = 0o600) -> Self | None:
        """Open and lock a file; return None if another owner has the lock. See `acquire`."""
        try:
            return cls(_open_locked(path, flags, mode, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            return None

    def fileno(self) -> int:
        """Return the descriptor of the locked file.

        Raises:
            ValueError: if the file is closed.
        """
        if self._descriptor is None:
            raise ValueError("the locked file is closed")
        return self._descriptor

    def close(self) -> None:
        """Close the file. This releases the lock, unless another process has inherited the descriptor."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def release(self) -> None:
        """Release the lock, also if another process has inherited the descriptor, and close the file."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _open_locked(path: Path, flags: int, mode: int, operation: int) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        fcntl.flock(descriptor, operation)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
