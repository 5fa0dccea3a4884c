"""The store of a file sink: files, and objects that can be compared and set."""

import abc
import errno
import os
import secrets
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamrt.common.file_lock import FileLock
from streamrt.connectors.failures import PassingError
from streamrt.errors import SinkError

__all__ = ["ChangedError", "FileStore", "LocalStore"]

_PASSING = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.ESTALE,
    errno.EAGAIN,
    errno.EBUSY,
    errno.ETIMEDOUT,
    errno.EMFILE,
}


class ChangedError(Exception):
    """An object is not the expected one."""


class FileStore(abc.ABC):
    """Files and objects by name. Names are relative paths with slashes.

    All methods raise `PassingError` for failures that may pass, and `SinkError` for others.
    """

    @abc.abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Write a file as a whole: readers see all of it or nothing. An existing file is replaced."""

    @abc.abstractmethod
    def read(self, name: str) -> tuple[bytes, Any] | None:
        """Return an object and its token, which is another one after each change; None if there is no object."""

    @abc.abstractmethod
    def replace(self, name: str, content: bytes, token: Any) -> Any:
        """Write an object if it has not changed, and return its new token.

        Args:
            name: name of the object.
            content: its content; the first line never occurs twice.
            token: its token; None if it must not exist.

        Raises:
            ChangedError: if it has changed.
        """

    @abc.abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file or an object, if it is there."""

    def check_conditions(self, target: str) -> None:
        """Look whether `replace` works: a service that passes over conditions would fence no process.

        Args:
            target: the bucket in words, such as "bucket 'archive'".

        Raises:
            SinkError: if it does not.
        """
        name = f"_streamrt/check-{secrets.token_hex(8)}"
        known = 0
        try:
            stale = self.replace(name, b"1", None)
            self.replace(name, b"2", stale)
            for token in (None, stale):
                try:
                    self.replace(name, b"3", token)
                except ChangedError:
                    known += 1
        except SinkError as error:
            raise type(error)(f"{error}; exactly_once=False needs no conditional writes") from None
        except ChangedError:
            known = 0
        finally:
            self.remove(name)
        if known < 2:
            raise SinkError(
                f"the service of {target} does not know conditional writes, without which a suspended process cannot be "
                "fenced: pass exactly_once=False to write values at least once"
            )

    def publish(self, name: str, files: Iterable[tuple[str, bytes]], content: bytes, token: Any) -> Any:
        """Write files that an object tells of, then write the object; return its new token.

        Args:
            name: name of the object.
            files: names and contents.
            content: the new content of the object.
            token: its token.

        Raises:
            ChangedError: if the object has changed, which means that other processes have written the files.
        """
        for file, data in files:
            self.put(file, data)
        return self.replace(name, content, token)


class LocalStore(FileStore):
    """Files of this machine, or of a shared file system whose locks (`flock`) and renames work.

    Args:
        root: the directory.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, content: bytes) -> None:  # noqa: D102
        path = self._root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Readers of the directory pass over names that begin with a dot.
            with _Temporary(path.with_name(f".{path.name}.{uuid.uuid4().hex}")) as temporary:
                temporary.write(content)
                temporary.rename(path)
            _sync_directory(path.parent)
        except OSError as error:
            raise _explain_error(path, error) from error

    def append(self, name: str, content: bytes) -> None:
        """Append to a file. If a process dies in the middle, the next one removes what it has left.

        Args:
            name: name of the file.
            content: the content.
        """
        path = self._root / name
        length = path.with_name(f".{path.name}.length")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock.acquire(path.with_name(f".{path.name}.lock"), mode=0o644), path.open("ab") as file:
                end = file.tell()
                if length.exists():
                    end = min(end, int(length.read_bytes()))
                else:
                    # Before the file grows, so that its complete part is known.
                    _write_number(length, end)
                file.truncate(end)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                _write_number(length, end + len(content))
            _sync_directory(path.parent)
        except OSError as error:
            raise _explain_error(path, error) from error

    def first(self, directory: str, extension: str) -> str | None:
        """Return the first file of a directory by name, or None.

        Args:
            directory: the directory.
            extension: the end of the names of files.
        """
        try:
            names = [
                entry.name
                for entry in os.scandir(self._root / directory)
                if entry.name.endswith(extension) and not entry.name.startswith(".") and entry.is_file()
            ]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _explain_error(self._root / directory, error) from error
        return f"{directory}/{min(names)}" if names else None

    def read(self, name: str) -> tuple[bytes, Any] | None:  # noqa: D102
        path = self._root / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _explain_error(path, error) from error
        return content, content.partition(b"\n")[0]

    def remove(self, name: str) -> None:  # noqa: D102
        path = self._root / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _explain_error(path, error) from error

    def replace(self, name: str, content: bytes, token: Any) -> Any:  # noqa: D102
        return self.publish(name, (), content, token)

    def publish(self, name: str, files: Iterable[tuple[str, bytes]], content: bytes, token: Any) -> Any:  # noqa: D102
        path = self._root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock.acquire(path.with_name(f".{path.name}.lock"), mode=0o644):
                if _first_line(path) != token:
                    raise ChangedError
                # Under the lock: a process that was suspended before must not write files that others have written, and
                # readers have removed, since.
                for file, data in files:
                    self.put(file, data)
                with _Temporary(path.with_name(f".{path.name}.new")) as temporary:
                    temporary.write(content)
                    temporary.rename(path)
            _sync_directory(path.parent)
        except OSError as error:
            raise _explain_error(path, error) from error
        return content.partition(b"\n")[0]


class _Temporary:
    """A file that is removed unless it is renamed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> "_Temporary":
        return self

    def write(self, content: bytes) -> None:
        with self._path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, target: Path) -> None:
        self._path.replace(target)

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            self._path.unlink(missing_ok=True)


def _write_number(path: Path, number: int) -> None:
    with _Temporary(path.with_name(f"{path.name}.new")) as temporary:
        temporary.write(str(number).encode())
        temporary.rename(path)


def _first_line(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.readline().removesuffix(b"\n")
    except FileNotFoundError:
        return None


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explain_error(path: Path, error: OSError) -> Exception:
    text = f"{path}: {error.strerror or type(error).__name__}"
    return PassingError(text) if error.errno in _PASSING else SinkError(f"cannot write to {text}")
