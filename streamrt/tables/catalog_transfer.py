"""The part of a catalogue that copies it: to a document, and from one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from streamrt.errors import CatalogError, ConfigurationError
from streamrt.tables.catalog_base import DEFAULT_DATABASE, CatalogBase
from streamrt.tables.creation import check_formats, prepare_topic
from streamrt.tables.info import TableInfo
from streamrt.tables.naming import IF_EXISTS, check_choice
from streamrt.tables.objects import CatalogObjects, IfExists, Kind

__all__ = ["CatalogTransfer"]

_VERSION = 1
# In this order: tables are in databases, and name connections.
_KINDS: tuple[Kind[Any], ...] = (CatalogObjects.databases, CatalogObjects.connections, CatalogObjects.tables)


class CatalogTransfer(CatalogBase):
    """Copies of a catalogue, for another cluster or a repository."""

    def export(self) -> dict[str, Any]:
        """Return databases, connections and tables as one document for JSON, without records and usages, and without secrets.

        Objects that cannot be read are left out, with a warning for each.
        """
        self._require_open()
        objects: dict[str, Any] = {}
        for kind in _KINDS:
            for name, value in self._objects.all(kind).items():
                objects[kind.key(name)] = orjson.loads(kind.write(value))
        return {"v": _VERSION, "objects": objects}

    def import_objects(self, document: Mapping[str, Any], *, if_exists: IfExists = "error") -> list[str]:
        """Add what `export` has returned, and create the topics of tables that do not exist.

        Args:
            document: the document.
            if_exists: what happens to objects that exist: "error", "ignore" leaves them, "replace" replaces them.

        Returns:
            The keys of the objects that were written, such as `table/shop.orders`.

        Raises:
            CatalogError: if it is no such document, a newer version wrote it, or an object exists. Nothing is written then.
        """
        check_choice("if_exists", if_exists, IF_EXISTS)
        self._require_open()
        read = self._read_document(document)
        existing = {key for key in read if self._objects.store.get(key) is not None}
        if existing and if_exists == "error":
            raise CatalogError(
                f"{', '.join(sorted(existing)[:3])} exist already, and nothing was imported: pass "
                "if_exists='ignore' or 'replace'"
            )
        written = []
        for key, (kind, name, value) in read.items():
            if key in existing and if_exists == "ignore":
                continue
            if isinstance(value, TableInfo):
                check_formats(value, self._registry)
                if self._links is not None:
                    topic = value.topic
                    value = replace(prepare_topic(self.links, value, None, self._timeout), topic=topic)
            self._write(kind, name, value)
            written.append(key)
        return written

    def _write(self, kind: Kind[Any], name: str, value: Any) -> None:
        self._objects.change(kind, name, lambda _: value)

    def _read_document(self, document: Mapping[str, Any]) -> dict[str, tuple[Kind[Any], str, Any]]:
        version = document.get("v") if isinstance(document, Mapping) else None
        if type(version) is int and version > _VERSION:
            raise CatalogError("a newer version of StreamRT has exported this catalogue: upgrade StreamRT")
        objects = document.get("objects") if isinstance(document, Mapping) else None
        if version != _VERSION or not isinstance(objects, Mapping):
            raise CatalogError("this is no catalogue that was exported: it has no 'v' and 'objects'")
        unknown = sorted(
            str(key) for key in objects if str(key).partition("/")[0] not in {each.word for each in _KINDS}
        )
        if unknown:
            raise CatalogError(
                f"the exported catalogue has the object {unknown[0]!r}, which this version does not know"
            )
        read: dict[str, tuple[Kind[Any], str, Any]] = {}
        for kind in _KINDS:
            for key, value in objects.items():
                if key.partition("/")[0] == kind.word:
                    name = key.partition("/")[2]
                    read[key] = (kind, name, kind.read(name, orjson.dumps(value)))
        databases = {*self.databases(), *(name for kind, name, _ in read.values() if kind.word == "database")}
        for _, name, value in read.values():
            if isinstance(value, TableInfo) and value.database not in {*databases, DEFAULT_DATABASE}:
                raise ConfigurationError(
                    f"table {name!r} is in database {value.database!r}, which neither the document nor the catalogue has"
                )
        return read
