"""Typed objects over a store of documents: what is found, what is damaged, and changes that are tried again."""

import dataclasses
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Generic, Literal, NamedTuple, TypeVar

from streamrt.errors import CatalogConflictError, CatalogError
from streamrt.tables.catalog_store import CatalogStore
from streamrt.tables.connections import Connection
from streamrt.tables.info import DatabaseInfo, TableInfo
from streamrt.tables.records import (
    connection_record,
    database_record,
    read_application,
    read_connection,
    read_database,
    read_table,
    table_record,
    usage_record,
)
from streamrt.tables.usages import ApplicationInfo

__all__ = ["CatalogObjects", "Found", "Kind", "now"]

logger = logging.getLogger("streamrt.tables")

_ATTEMPTS = 5
T = TypeVar("T")


class Found(NamedTuple, Generic[T]):
    """An object, and the version of the store that it has."""

    value: T
    version: str


@dataclasses.dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of objects: the first part of their keys, and how they are documents."""

    word: str
    read: Callable[[str, bytes], T]
    write: Callable[[T], bytes]

    def key(self, name: str) -> str:
        """Return the key of an object."""
        return f"{self.word}/{name}"


class CatalogObjects:
    """The objects in a store.

    Args:
        store: the store.
    """

    tables: Kind[TableInfo] = Kind("table", read_table, table_record)
    databases: Kind[DatabaseInfo] = Kind("database", read_database, database_record)
    connections: Kind[Connection] = Kind("connection", read_connection, connection_record)
    applications: Kind[ApplicationInfo] = Kind("usage", read_application, usage_record)

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._warned: set[tuple[str, str]] = set()

    @property
    def store(self) -> CatalogStore:
        """The store."""
        return self._store

    def find(self, kind: Kind[T], name: str) -> Found[T] | None:
        """Return an object, or None if there is none.

        Raises:
            CatalogError: if it cannot be read.
        """
        stored = self._store.get(kind.key(name))
        return None if stored is None else Found(kind.read(name, stored.value), stored.version)

    def names(self, kind: Kind[T], prefix: str = "") -> list[str]:
        """Return the names of objects, also of those that cannot be read."""
        return [key.partition("/")[2] for key in self._store.list(kind.key(prefix))]

    def all(self, kind: Kind[T], prefix: str = "") -> dict[str, T]:
        """Return the objects by name. Those that cannot be read are left out, with a warning for each."""
        found: dict[str, T] = {}
        for key, stored in self._store.list(kind.key(prefix)).items():
            name = key.partition("/")[2]
            try:
                found[name] = kind.read(name, stored.value)
            except CatalogError as error:
                if (key, stored.version) not in self._warned:
                    self._warned.add((key, stored.version))
                    logger.warning("%s; it is left out", error)
        return found

    def put(self, kind: Kind[T], name: str, value: T, expected: str | None) -> None:
        """Write an object; see `CatalogStore.put`."""
        self._store.put(kind.key(name), kind.write(value), expected)

    def change(self, kind: Kind[T], name: str, change: Callable[[T | None], T | None]) -> T | None:
        """Replace an object by what a function makes of it, again if another program was faster.

        Args:
            kind: the kind of the object.
            name: its name.
            change: returns the new object for the one that is there, or None; None deletes it. It may raise.

        Returns:
            The new object.

        Raises:
            CatalogConflictError: if other programs were faster each time.
        """
        for attempt in range(_ATTEMPTS):
            found = self.find(kind, name)
            value = change(None if found is None else found.value)
            try:
                if value is not None:
                    self.put(kind, name, value, None if found is None else found.version)
                elif found is not None:
                    self._store.delete(kind.key(name), found.version)
            except CatalogConflictError:
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return value
        raise AssertionError("unreachable")

    def delete_unread(self, kind: Kind[T], name: str) -> bool:
        """Delete an object whether it can be read or not; return whether it was there."""
        stored = self._store.get(kind.key(name))
        if stored is not None:
            self._store.delete(kind.key(name), stored.version)
        return stored is not None


def now() -> datetime:
    """Return the time in UTC, in milliseconds, as documents have it."""
    moment = datetime.now(timezone.utc)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


IfExists = Literal["error", "ignore", "replace"]
IfMissing = Literal["error", "ignore"]
Texts = Mapping[str, str]
