"""Files that are written whole or not at all."""

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of a new file, which replaces the one at `path` when the block ends without an exception.

    It is on disk before that, so after a crash of the process or of the machine, `path` has the former file or the whole
    new one. A process that is killed leaves the unfinished file, `.<name>.<number>.tmp` next to the other.

    Args:
        path: the file; it need not exist. If it is a symbolic link, the file that this leads to is replaced.

    Raises:
        OSError: if it cannot be written, or is a directory or a device.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp(), "numbers")
        >>> with replacing(target) as unfinished:
        ...     _ = unfinished.write_text("1 2 3")
        >>> target.read_text()
        '1 2 3'
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    unfinished = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield unfinished
        _sync_path(unfinished)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    # Some file systems refuse this for directories.
    with contextlib.suppress(OSError):
        _sync_path(target.parent)


def _sync_path(path: Path) -> None:
    """Write a file, or the names in a directory, to disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
