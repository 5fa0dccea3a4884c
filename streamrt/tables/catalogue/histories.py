"""Earlier schemas of tables that have had many: a table's own record keeps the latest ones, and further records all others.

```
schemas/<id of the table>/<first>-<last>-<digest>    {"v":1,"schemas":[{"version":<first>,"columns":...}, ...]}
```

The name of such a record says what is in it, and it never changes. It is written before the record of the table, whose
field `history_in` lists the parts `<first>-<last>-<digest>`; that record has `"v":2`, so that no version that does not know
the field takes the table for one with a shorter history. That of a maintained table has `"v":3` in any case.
"""

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import orjson

from streamrt.errors import CatalogConflictError, CatalogError
from streamrt.schema import Schema
from streamrt.tables.catalogue.catalog_store import CatalogStore
from streamrt.tables.catalogue.documents import dumped
from streamrt.tables.catalogue.records import MAINTAINED_VERSION, VERSION, history_of, read_document

__all__ = ["SPLIT_VERSION", "Histories", "MissingHistoryError"]

SPLIT_VERSION = 2
"""`v` of a table's document whose history is also in further records."""

_WORD = "schemas"
_FIELD = "history_in"
_PART = re.compile(r"[0-9]{1,9}-[0-9]{1,9}-[0-9a-f]{12}")
_LONGEST_INLINE = 128_000
_LONGEST_PART = 400_000
_CACHED = 200


class MissingHistoryError(CatalogError):
    """A part of a history is not there: the table was dropped or replaced since its record was read, or the part is lost."""


class Histories:
    """Keeps and finds the parts of histories in a store. It may be used in any thread.

    Args:
        store: the store.
    """

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        # Parts do not change; tables with long histories are read again and again.
        self._cache: OrderedDict[str, tuple[list[Any], dict[int, Schema]]] = OrderedDict()

    def joined(self, name: str, value: bytes) -> tuple[bytes, dict[int, Schema]]:
        """Return the document of a table without its parts, and the schemas that are in these.

        Raises:
            MissingHistoryError: if a part is not there.
            CatalogError: if one cannot be read.
        """
        document = _split_document(name, value)
        if document is None:
            return value, {}
        schemas: dict[int, Schema] = {}
        for key in self._part_keys(name, document):
            schemas |= self._read_part(name, key)[1]
        return orjson.dumps(_without_parts(document)), schemas

    def whole(self, name: str, value: bytes) -> dict[str, Any]:
        """Return the document of a table with its whole history in it, as exports have it."""
        document = _split_document(name, value)
        if document is None:
            found: dict[str, Any] = orjson.loads(value)
            return found
        earlier = [schema for key in self._part_keys(name, document) for schema in self._read_part(name, key)[0]]
        return {**_without_parts(document), "history": [*earlier, *document["history"]]}

    def parts(self, name: str, value: bytes) -> list[str]:
        """Return the names of the parts of a document's history."""
        document = _split_document(name, value)
        return [] if document is None else [str(part) for part in document[_FIELD]]

    def split(self, name: str, document: dict[str, Any], parts: list[str]) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Move a history out of a document that is too long.

        Args:
            name: name of the table.
            document: its document, with the schemas that are in no part yet.
            parts: names of the parts that there are.

        Returns:
            The document, and the parts to write before it by their keys.

        Raises:
            CatalogError: if a schema is too long for a record.
        """
        made: dict[str, bytes] = {}
        history = document["history"]
        if history and len(orjson.dumps(document)) > _LONGEST_INLINE:
            for schemas in _group_schemas(history):
                data = dumped("table", name, {"v": VERSION, "schemas": schemas})
                digest = hashlib.sha256(data).hexdigest()[:12]
                part = f"{schemas[0]['version']}-{schemas[-1]['version']}-{digest}"
                parts = [*parts, part]
                made[_part_key(document["id"], part)] = data
            document = {**document, "history": []}
        if parts:
            document = {**document, "v": max(document["v"], SPLIT_VERSION), _FIELD: parts}
        return document, made

    def write(self, parts: Mapping[str, bytes]) -> None:
        """Write parts, as far as they are not there."""
        for key, data in parts.items():
            try:
                self._store.put(key, data, None)
            except CatalogConflictError:
                # Another program, or an attempt that was cut short, has written the same.
                if self._store.get(key) is None:
                    raise

    def forget(self, table_id: str) -> None:
        """Delete all parts of a table that is gone."""
        for key, stored in self._store.list(_part_key(table_id, "")).items():
            try:
                self._store.delete(key, stored.version)
            except CatalogConflictError:
                # Another program is also deleting it.
                continue

    def _read_part(self, name: str, key: str) -> tuple[list[Any], dict[int, Schema]]:
        with self._lock:
            cached = self._cache.get(key)
            if cached is not None:
                self._cache.move_to_end(key)
                return cached
        stored = self._store.get(key)
        if stored is None:
            raise MissingHistoryError(
                f"the record of table {name!r} in the catalogue is damaged, its earlier schemas {key!r} are missing: import "
                "the table again"
            )
        read = read_document(
            "table", name, stored.value, lambda _, found: (found["schemas"], history_of(found["schemas"]))
        )
        with self._lock:
            self._cache[key] = read
            while len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        return read

    def _part_keys(self, name: str, document: Mapping[str, Any]) -> list[str]:
        return [_part_key(document["id"], part) for part in document[_FIELD]]


def _split_document(name: str, value: bytes) -> dict[str, Any] | None:
    """Return a document if its history is in parts; None for others, of which the caller finds out what they are."""
    if _FIELD.encode() not in value:
        return None
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or document.get("v") not in (SPLIT_VERSION, MAINTAINED_VERSION):
        return None
    if _FIELD not in document:
        return None
    parts = document[_FIELD]
    is_sound = isinstance(parts, list) and all(isinstance(part, str) and _PART.fullmatch(part) for part in parts)
    if not is_sound or not isinstance(document.get("id"), str) or not isinstance(document.get("history"), list):
        raise CatalogError(
            f"the record of table {name!r} in the catalogue is damaged: delete it, or import the table again"
        )
    return document


def _part_key(table_id: str, part: str) -> str:
    return f"{_WORD}/{table_id}/{part}"


def _without_parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as one without parts has it."""
    version = VERSION if document["v"] == SPLIT_VERSION else document["v"]
    return {**{field: value for field, value in document.items() if field != _FIELD}, "v": version}


def _group_schemas(history: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the schemas in groups that are records of a moderate length; a long one has its own group."""
    groups: list[list[dict[str, Any]]] = []
    room = 0
    for schema in history:
        size = len(orjson.dumps(schema))
        if not groups or size > room:
            groups.append([])
            room = _LONGEST_PART
        groups[-1].append(schema)
        room -= size
    return groups
