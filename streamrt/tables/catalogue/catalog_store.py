"""Where a catalogue keeps its objects: a seam, with memory and files behind it; `kafka_catalog` has the topic."""

import abc
import contextlib
import hashlib
import os
import socket
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

import orjson

from streamrt.common.file_lock import FileLock
from streamrt.errors import CatalogConflictError, CatalogError, ConfigurationError
from streamrt.tables.access.links import TableLinks

__all__ = ["CatalogStore", "FileCatalog", "MemoryCatalog", "Stored"]

_LONGEST_NAME = 200
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.1


class Stored(NamedTuple):
    """An object in a store.

    Attributes:
        value: a JSON document.
        version: differs after each change; stores choose it.
    """

    value: bytes
    version: str


class CatalogStore(abc.ABC):
    """Keeps JSON documents by key, such as `table/shop.orders`, and changes each by compare-and-set.

    Stores may be used in any thread, and by several programs at once.
    """

    is_own: ClassVar[bool] = False
    """Whether only those write the store who also run the programs that use it; its tables may then use everything."""
    note: str | None = None
    """Why the store may look emptier than it is, in one clause; None if it is all there."""

    def connect(self, links: TableLinks | None, timeout: float) -> None:  # noqa: B027 - most stores need no topics
        """Accept how topics are reached; the catalogue calls it before anything else.

        Args:
            links: how topics are reached, or None if the catalogue has no broker.
            timeout: seconds to wait for answers.
        """

    @abc.abstractmethod
    def get(self, key: str) -> Stored | None:
        """Return an object, or None if there is none. All that was put before the call is seen."""

    @abc.abstractmethod
    def list(self, prefix: str = "") -> dict[str, Stored]:
        """Return the objects whose keys begin with a prefix, sorted by key."""

    @abc.abstractmethod
    def put(self, key: str, value: bytes, expected: str | None) -> str:
        """Write an object, and return its new version.

        Args:
            key: the key.
            value: a JSON document; a store may format it.
            expected: the version that it has now; None if there is none.

        Raises:
            CatalogConflictError: if it has another version.
        """

    @abc.abstractmethod
    def delete(self, key: str, expected: str) -> None:
        """Delete an object that has a version.

        Raises:
            CatalogConflictError: if it has another version, or is gone.
        """

    def close(self) -> None:  # noqa: B027 - most stores have nothing open
        """Close the connections."""


def conflict(key: str) -> CatalogConflictError:
    """Return the error of a change that came too late."""
    kind, _, name = key.partition("/")
    return CatalogConflictError(
        f"{kind} {name!r} was changed by another program in the meantime: read it again, and repeat the change"
    )


class MemoryCatalog(CatalogStore):
    """A catalogue in this process, for tests; several `Catalog` objects may share it."""

    is_own: ClassVar[bool] = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, Stored] = {}
        self._changes = 0

    def get(self, key: str) -> Stored | None:  # noqa: D102
        with self._lock:
            return self._objects.get(key)

    def list(self, prefix: str = "") -> dict[str, Stored]:  # noqa: D102
        with self._lock:
            return {key: self._objects[key] for key in sorted(self._objects) if key.startswith(prefix)}

    def put(self, key: str, value: bytes, expected: str | None) -> str:  # noqa: D102
        with self._lock:
            self._require_version(key, expected)
            self._changes += 1
            self._objects[key] = Stored(bytes(value), str(self._changes))
            return str(self._changes)

    def delete(self, key: str, expected: str) -> None:  # noqa: D102
        with self._lock:
            self._require_version(key, expected)
            del self._objects[key]

    def _require_version(self, key: str, expected: str | None) -> None:
        found = self._objects.get(key)
        if (None if found is None else found.version) != expected:
            raise conflict(key)


class FileCatalog(CatalogStore):
    """A catalogue in files, one for each object, such as `tables/table/shop.orders.json`; they may be kept in Git.

    Args:
        directory: the directory; it is created by the first change. A change locks it, and waits while another program does.

    Example:
        >>> import tempfile
        >>> store = FileCatalog(tempfile.mkdtemp())
        >>> version = store.put("table/shop.orders", b'{"v":1}', None)
        >>> list(store.list("table/"))
        ['table/shop.orders']
    """

    is_own: ClassVar[bool] = True

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._timeout = 30.0

    def connect(self, links: TableLinks | None, timeout: float) -> None:  # noqa: D102
        self._timeout = timeout

    def get(self, key: str) -> Stored | None:  # noqa: D102
        return self._read(self._object_path(key))

    def list(self, prefix: str = "") -> dict[str, Stored]:  # noqa: D102
        found: dict[str, Stored] = {}
        for path in self._directory.glob("*/*.json"):
            key = f"{path.parent.name}/{urllib.parse.unquote(path.name.removesuffix('.json'))}"
            # A file of another name, such as one that an editor has left, is not an object.
            if key.startswith(prefix) and self._object_path(key) == path:
                stored = self._read(path)
                if stored is not None:
                    found[key] = stored
        return dict(sorted(found.items()))

    def put(self, key: str, value: bytes, expected: str | None) -> str:  # noqa: D102
        path = self._object_path(key)
        text = _format_document(value)
        with self._hold_lock():
            self._require_version(key, path, expected)
            path.parent.mkdir(exist_ok=True)
            self._replace_file(path, text)
        return _version_of(text)

    def delete(self, key: str, expected: str) -> None:  # noqa: D102
        path = self._object_path(key)
        with self._hold_lock():
            self._require_version(key, path, expected)
            path.unlink()

    def _object_path(self, key: str) -> Path:
        kind, slash, name = key.partition("/")
        # A dot at the beginning would hide the file, and two of them would lead elsewhere.
        quoted = urllib.parse.quote(name, safe="")
        quoted = f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted
        if not slash or not kind.isalpha() or not name or len(quoted) > _LONGEST_NAME:
            raise ConfigurationError(f"{key!r} cannot be the name of a file: choose a shorter name")
        return self._directory / kind / f"{quoted}.json"

    def _read(self, path: Path) -> Stored | None:
        try:
            value = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise CatalogError(f"{path} of the catalogue cannot be read: {error.strerror}") from None
        return Stored(value, _version_of(value))

    def _require_version(self, key: str, path: Path, expected: str | None) -> None:
        found = self._read(path)
        if (None if found is None else found.version) != expected:
            raise conflict(key)

    @contextlib.contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Keep other writers away. The kernel releases the lock of a process that was killed."""
        path = self._directory / ".lock"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            lock = self._acquired(path)
        except OSError as error:
            raise CatalogError(f"the catalogue {self._directory} cannot be changed: {error.strerror}") from None
        try:
            yield
        finally:
            # A process that was forked meanwhile has inherited the lock, and just closing the file would leave it there.
            lock.release()

    def _acquired(self, path: Path) -> FileLock:
        deadline = time.monotonic() + self._timeout
        pause_s = _SHORTEST_PAUSE_S
        while True:
            lock = FileLock.try_acquire(path, mode=0o644)
            if lock is not None:
                os.ftruncate(lock.fileno(), 0)
                os.pwrite(lock.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
                return lock
            if time.monotonic() >= deadline:
                raise CatalogError(
                    f"the catalogue {self._directory} could not be changed for {self._timeout:g} s, because "
                    f"{_describe_holder(path)} has locked it: wait for that program or end it, and repeat the change"
                )
            time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _replace_file(self, path: Path, text: bytes) -> None:
        made = path.with_name(f".{uuid.uuid4().hex}.tmp")
        try:
            with made.open("wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            made.replace(path)
        except OSError as error:
            made.unlink(missing_ok=True)
            raise CatalogError(f"{path} of the catalogue cannot be written: {error.strerror}") from None


def _describe_holder(lock: Path) -> str:
    """Return who has a lock, as the file says it."""
    try:
        text = lock.read_text("utf-8", "replace").strip()
    except OSError:
        text = ""
    return text[:_LONGEST_NAME] if text.isprintable() and text else "another program"


def _version_of(value: bytes) -> str:
    # Of the bytes, so that a change by an editor also counts.
    return hashlib.sha256(value).hexdigest()[:32]


def _format_document(value: bytes) -> bytes:
    try:
        document: Mapping[str, object] = orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
