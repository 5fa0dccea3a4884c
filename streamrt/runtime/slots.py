"""Numbers for the copies of an application that share a state directory."""

import fcntl
import os
from pathlib import Path

from streamrt.errors import ConfigurationError

_MOST = 1_000


class MemberSlot:
    """The lowest number that no other running copy holds; a lock on a file keeps it until the process ends.

    Example:
        >>> import tempfile
        >>> directory = Path(tempfile.mkdtemp())
        >>> first, second = MemberSlot.take(directory), MemberSlot.take(directory)
        >>> first.number, second.number
        (0, 1)
        >>> first.release(), second.release()
        (None, None)
    """

    def __init__(self, number: int, descriptor: int) -> None:
        self.number = number
        self._descriptor = descriptor

    @classmethod
    def take(cls, directory: Path) -> "MemberSlot":
        """Lock the first free slot in `directory`, which is made if it does not exist.

        Raises:
            OSError: if the directory cannot be written.
            ConfigurationError: if 1,000 copies run already.
        """
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(_MOST):
            descriptor = os.open(directory / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            return cls(number, descriptor)
        raise ConfigurationError(
            f"{_MOST} copies of the application use the state directory {directory.parent} already"
        )

    def release(self) -> None:
        """Give the slot back."""
        os.close(self._descriptor)
