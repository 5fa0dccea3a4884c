"""Typed objects over a store of documents: what is found, what is damaged, and changes that are tried again."""

import dataclasses
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, Generic, Literal, TypeVar

import orjson

from streamrt.errors import CatalogConflictError, CatalogError
from streamrt.tables.catalogue.catalog_store import CatalogStore
from streamrt.tables.catalogue.documents import dumped, with_unknown_fields
from streamrt.tables.catalogue.histories import Histories, MissingHistoryError
from streamrt.tables.catalogue.records import (
    connection_record,
    database_record,
    read_application,
    read_connection,
    read_database,
    read_table,
    table_record,
    usage_record,
)
from streamrt.tables.descriptions.connections import Connection
from streamrt.tables.descriptions.info import DatabaseInfo, TableInfo
from streamrt.tables.descriptions.usages import ApplicationInfo

__all__ = ["CatalogObjects", "Found", "Kind", "now"]

logger = logging.getLogger("streamrt.tables")

_ATTEMPTS = 5
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Found(Generic[T]):
    """An object, the version of the store that it has, and its document, which may have fields of a newer StreamRT."""

    value: T
    version: str
    document: bytes


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
        self._histories = Histories(store)
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
        while stored is not None:
            try:
                return Found(self.read(kind, name, stored.value), stored.version, stored.value)
            except MissingHistoryError:
                # It may have been dropped since.
                former, stored = stored, self._store.get(kind.key(name))
                if stored is not None and stored.version == former.version:
                    raise
        return None

    def names(self, kind: Kind[T], prefix: str = "") -> list[str]:
        """Return the names of objects, also of those that cannot be read."""
        return [key.partition("/")[2] for key in self._store.list(kind.key(prefix))]

    def all(self, kind: Kind[T], prefix: str = "") -> dict[str, T]:
        """Return the objects by name. Those that cannot be read are left out, with a warning for each."""
        return {name: found.value for name, found in self.found(kind, prefix).items()}

    def found(self, kind: Kind[T], prefix: str = "") -> dict[str, Found[T]]:
        """Return the objects by name, with their documents; see `all`."""
        listed: dict[str, Found[T]] = {}
        for key, stored in self._store.list(kind.key(prefix)).items():
            name = key.partition("/")[2]
            try:
                listed[name] = Found(self.read(kind, name, stored.value), stored.version, stored.value)
            except MissingHistoryError as error:
                self._find_again(kind, name, listed, stored.version, error)
            except CatalogError as error:
                self._warn_once(key, stored.version, error)
        return listed

    def document(self, kind: Kind[T], name: str, found: Found[T]) -> dict[str, Any]:
        """Return the whole document of an object, also of a table whose history is in further records."""
        if kind.word == self.tables.word:
            return self._histories.whole(name, found.document)
        document: dict[str, Any] = orjson.loads(found.document)
        return document

    def put(self, kind: Kind[T], name: str, value: T, expected: str | None, former: Found[T] | None = None) -> str:
        """Write an object, and return its version of the store; see `CatalogStore.put`.

        Args:
            kind: the kind of the object.
            name: its name.
            value: the object.
            expected: the version of the store that it has now; None if there is none.
            former: what it was before, as it was read; fields of its document that this version does not know are kept.

        Raises:
            CatalogConflictError: if it has another version.
            CatalogError: if it is too long for a record. In that case, nothing is written.
        """
        data, parts = self._make_documents(kind, name, value, former)
        self._histories.write(parts)
        return self._store.put(kind.key(name), data, expected)

    def check(self, kind: Kind[T], name: str, value: T) -> None:
        """Refuse an object that `put` would refuse, before anything is done for it.

        Raises:
            CatalogError: if it is too long for a record, or could not be read again.
        """
        # Histories are as long as they like, in further records.
        latest = dataclasses.replace(value, schema_history={}) if isinstance(value, TableInfo) else value
        data, _ = self._make_documents(kind, name, latest, None)
        try:
            kind.read(name, data)
        except CatalogError:
            raise CatalogError(
                f"{kind.word} {name!r} has an argument that a catalogue would not read again: nothing was changed; see the "
                "types of the arguments"
            ) from None

    def change(
        self, kind: Kind[T], name: str, change: Callable[[T | None], T | None], keep_unknown: bool = True
    ) -> T | None:
        """Replace an object by what a function makes of it, again if another program was faster.

        Args:
            kind: the kind of the object.
            name: its name.
            change: returns the new object for the one that is there, or None; None deletes it. It may raise.
            keep_unknown: whether fields that a newer StreamRT has added stay; not if the object is described again.

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
                    version = None if found is None else found.version
                    self.put(kind, name, value, version, found if keep_unknown else None)
                elif found is not None:
                    self._store.delete(kind.key(name), found.version)
            except CatalogConflictError:
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return value
        raise AssertionError("unreachable")

    def forget_history(self, document: bytes) -> None:
        """Delete the further records of a table that is gone.

        Args:
            document: the document that it had, whether it can be read or not.
        """
        try:
            table_id = orjson.loads(document)["id"]
        except (orjson.JSONDecodeError, LookupError, TypeError):
            return
        if table_id and isinstance(table_id, str):
            self._histories.forget(table_id)

    def delete_unread(self, kind: Kind[T], name: str) -> bool:
        """Delete an object whether it can be read or not; return whether it was there."""
        stored = self._store.get(kind.key(name))
        if stored is not None:
            self._store.delete(kind.key(name), stored.version)
            if kind.word == self.tables.word:
                self.forget_history(stored.value)
        return stored is not None

    def read(self, kind: Kind[T], name: str, value: bytes) -> T:
        """Return the object of a document.

        Args:
            kind: its kind.
            name: its name.
            value: the document.

        Raises:
            CatalogError: if it cannot be read.
        """
        if kind.word != self.tables.word:
            return kind.read(name, value)
        joined, earlier = self._histories.joined(name, value)
        made = kind.read(name, joined)
        if isinstance(made, TableInfo) and earlier:
            made = dataclasses.replace(made, schema_history={**earlier, **made.schema_history})
        return made

    def _make_documents(
        self, kind: Kind[T], name: str, value: T, former: Found[T] | None
    ) -> tuple[bytes, dict[str, bytes]]:
        """Return the document of an object, and the further records to write before it."""
        if not isinstance(value, TableInfo):
            return dumped(kind.word, name, self._make_document(kind, name, value, former)), {}
        parts: list[str] = []
        before: Found[TableInfo] | None = None
        if former is not None and isinstance(former.value, TableInfo) and former.value.id == value.id:
            parts = self._histories.parts(name, former.document)
            joined, earlier = self._histories.joined(name, former.document)
            inline = {number: each for number, each in former.value.schema_history.items() if number not in earlier}
            before = Found(dataclasses.replace(former.value, schema_history=inline), former.version, joined)
        last = max((int(part.split("-")[1]) for part in parts), default=0)
        history = {number: schema for number, schema in value.schema_history.items() if number > last}
        latest = dataclasses.replace(value, schema_history=history)
        document = self._make_document(self.tables, name, latest, before)
        document, made = self._histories.split(name, document, parts)
        return dumped(kind.word, name, document), made

    def _make_document(self, kind: Kind[Any], name: str, value: Any, former: Found[Any] | None) -> dict[str, Any]:
        try:
            document: dict[str, Any] = orjson.loads(kind.write(value))
        except TypeError as error:
            raise CatalogError(f"{kind.word} {name!r} cannot be kept as JSON: {error}") from None
        if former is None:
            return document
        before, known = orjson.loads(former.document), orjson.loads(kind.write(former.value))
        merged: dict[str, Any] = with_unknown_fields(
            document, _with_schema_in_history(before), _with_schema_in_history(known)
        )
        return merged

    def _find_again(
        self, kind: Kind[T], name: str, listed: dict[str, Found[T]], version: str, error: CatalogError
    ) -> None:
        try:
            found = self.find(kind, name)
        except CatalogError:
            self._warn_once(kind.key(name), version, error)
        else:
            if found is not None:
                listed[name] = found

    def _warn_once(self, key: str, version: str, error: CatalogError) -> None:
        if (key, version) not in self._warned:
            self._warned.add((key, version))
            logger.warning("%s; it is left out", error)


def _with_schema_in_history(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document whose history also has the schema of today, where the next change finds it."""
    schema, history = document.get("schema"), document.get("history")
    if not isinstance(schema, dict) or not isinstance(history, list):
        return document
    return {**document, "history": [*history, schema]}


def now() -> datetime:
    """Return the time in UTC, in milliseconds, as documents have it."""
    moment = datetime.now(timezone.utc)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


IfExists = Literal["error", "ignore", "replace"]
IfMissing = Literal["error", "ignore"]
Texts = Mapping[str, str]
