"""The part of a catalogue that copies it: to a document, and from one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import orjson

from streamrt.errors import CatalogConflictError, CatalogError, ConfigurationError
from streamrt.tables.catalogue.catalog_databases import CatalogDatabases
from streamrt.tables.catalogue.catalog_state import DEFAULT_DATABASE, CatalogState
from streamrt.tables.catalogue.catalog_store import Stored
from streamrt.tables.catalogue.creation import prepare_topic, with_format_options
from streamrt.tables.catalogue.objects import CatalogObjects, Found, IfExists, Kind
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.descriptions.naming import IF_EXISTS, check_choice

__all__ = ["CatalogTransfer"]

_VERSION = 1
_ATTEMPTS = 5
T = TypeVar("T")
# In this order: tables are in databases, and name connections.
_KINDS: tuple[Kind[Any], ...] = (CatalogObjects.databases, CatalogObjects.connections, CatalogObjects.tables)


class CatalogTransfer:
    """Copies of a catalogue, for another cluster or a repository; `Catalog` says what each method does."""

    def __init__(self, state: CatalogState, databases: CatalogDatabases) -> None:
        self._state = state
        self._objects = state.objects
        self._databases = databases

    def export(self) -> dict[str, Any]:
        """Return databases, connections and tables as one document for JSON."""
        self._state.require_open()
        objects: dict[str, Any] = {}
        for kind in _KINDS:
            for name, found in self._objects.found(kind).items():
                objects[kind.key(name)] = self._objects.document(kind, name, found)
        return {"v": _VERSION, "objects": objects}

    def import_objects(self, document: Mapping[str, Any], if_exists: IfExists) -> list[str]:
        """Add what `export` has returned, and create the topics of tables that do not exist."""
        check_choice("if_exists", if_exists, IF_EXISTS)
        self._state.require_open()
        read = self._read_document(document)
        existing = {key for key in read if self._objects.store.get(key) is not None}
        if existing and if_exists == "error":
            raise CatalogError(
                f"{', '.join(sorted(existing)[:3])} exist already, and nothing was imported: pass "
                "if_exists='ignore' or 'replace'"
            )
        wanted = {key: each for key, each in read.items() if if_exists != "ignore" or key not in existing}
        for kind, name, found in wanted.values():
            if isinstance(found.value, TableInfo):
                with_format_options(found.value, self._state.registry)
            self._objects.check(kind, name, found.value)
        written: dict[str, str] = {}
        try:
            for key, (kind, name, found) in wanted.items():
                version = self._import_object(kind, name, found, if_exists)
                if version is not None:
                    written[key] = version
        except Exception:
            if if_exists == "error":
                self._undo_written(written)
            raise
        return list(written)

    def _import_object(self, kind: Kind[T], name: str, found: Found[T], if_exists: IfExists) -> str | None:
        """Write an object, and return its version; None if there is one already, which stays."""
        value = self._with_topic(found.value)
        for attempt in range(_ATTEMPTS):
            former = self._objects.store.get(kind.key(name)) if if_exists == "replace" else None
            try:
                version = self._objects.put(kind, name, value, None if former is None else former.version, found)
            except CatalogConflictError:
                if if_exists == "ignore":
                    return None
                if if_exists == "error":
                    raise CatalogError(
                        f"{kind.key(name)} was created by another program meanwhile, and nothing was imported: pass "
                        "if_exists='ignore' or 'replace'"
                    ) from None
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                if former is not None and isinstance(value, TableInfo):
                    self._forget_other(former, value)
                return version
        raise AssertionError("unreachable")

    def _forget_other(self, former: Stored, value: TableInfo) -> None:
        """Delete the history of another table that had the name."""
        if value.id.encode() not in former.value:
            self._objects.forget_history(former.value)

    def _with_topic(self, value: Any) -> Any:
        """Return a table with its topic, which is created if there is none; other objects as they are."""
        if not isinstance(value, TableInfo):
            return value
        value = with_format_options(value, self._state.registry)
        self._state.require_topic(value)
        if not self._state.has_topics:
            return value
        return replace(prepare_topic(self._state.links, value, None, self._state.timeout), topic=value.topic)

    def _undo_written(self, written: Mapping[str, str]) -> None:
        # Tables are in databases, and name connections.
        for key, version in reversed(list(written.items())):
            try:
                self._objects.store.delete(key, version)
            except CatalogConflictError:
                # Somebody has changed it, and wants it.
                continue

    def _read_document(self, document: Mapping[str, Any]) -> dict[str, tuple[Kind[Any], str, Found[Any]]]:
        version = document.get("v") if isinstance(document, Mapping) else None
        if type(version) is int and version > _VERSION:
            raise CatalogError("a newer version of StreamRT has exported this catalogue: upgrade StreamRT")
        objects = document.get("objects") if isinstance(document, Mapping) else None
        if version != _VERSION or not isinstance(objects, Mapping):
            raise CatalogError("this is not an exported catalogue: it has no 'v' and 'objects'")
        unknown = sorted(
            str(key) for key in objects if str(key).partition("/")[0] not in {each.word for each in _KINDS}
        )
        if unknown:
            raise CatalogError(
                f"the exported catalogue has the object {unknown[0]!r}, which this version does not know"
            )
        read: dict[str, tuple[Kind[Any], str, Found[Any]]] = {}
        for kind in _KINDS:
            for key, value in objects.items():
                if key.partition("/")[0] == kind.word:
                    name = key.partition("/")[2]
                    try:
                        data = orjson.dumps(value)
                    except TypeError:
                        raise CatalogError(f"{key} of the exported catalogue is not a JSON document") from None
                    read[key] = (kind, name, Found(kind.read(name, data), "", data))
        databases = {*self._databases.names(), *(name for kind, name, _ in read.values() if kind.word == "database")}
        for _, name, found in read.values():
            value = found.value
            if isinstance(value, TableInfo) and value.database not in {*databases, DEFAULT_DATABASE}:
                raise ConfigurationError(
                    f"table {name!r} is in database {value.database!r}, which neither the document nor the catalogue has"
                )
        return read
