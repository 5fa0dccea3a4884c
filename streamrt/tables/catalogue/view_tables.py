"""Tables of materialized views: which one a consumer group writes, and how two of them are swapped.

A view is rebuilt by another consumer group, in a table next to that of the view. Then the two names exchange their tables:

```
note of the swap is written --> first name has the other table --> second name has the former one --> note is deleted
```

Catalogues change one document at a time. The second step decides: readers of a name see the table of before or the other
one. A swap that ended after it, when both names have the same table, is completed by the next one, from the note.
"""

import logging
from dataclasses import replace
from typing import NamedTuple

import orjson

from streamrt.errors import ArgumentValueError, CatalogError, InvalidOperationError, StreamRTError
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.tables.catalogue.catalog_state import CatalogState
from streamrt.tables.catalogue.catalog_store import Stored
from streamrt.tables.catalogue.catalog_tables import CatalogTables
from streamrt.tables.catalogue.catalog_usages import CatalogUsages
from streamrt.tables.catalogue.creation import TableArguments
from streamrt.tables.catalogue.documents import dumped
from streamrt.tables.catalogue.objects import Found, now
from streamrt.tables.catalogue.table_owners import TableOwners, require_owner
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.descriptions.naming import SUCCESSOR_SUFFIX

__all__ = ["ViewTables"]

logger = logging.getLogger("streamrt.tables")

_NOTE = "swap"
_VERSION = 1


class _Note(NamedTuple):
    """A swap that has begun.

    Attributes:
        other: the second name.
        former: the document that the first table had.
        new_id: id of the table that it gets.
        version: the version that the note has in the store.
    """

    other: str
    former: bytes
    new_id: str
    version: str


class ViewTables:
    """The tables of materialized views in a catalogue; `Catalog` says what each method does.

    Args:
        state: the catalogue.
        tables: its tables.
        owners: which groups have them.
        usages: which applications use them.
    """

    def __init__(self, state: CatalogState, tables: CatalogTables, owners: TableOwners, usages: CatalogUsages) -> None:
        self._state = state
        self._objects = state.objects
        self._tables = tables
        self._owners = owners
        self._usages = usages

    def open(self, name: str, schema: Schema, comment: str | None, group: str, replaces: bool) -> TableInfo:
        """Return the table to which a group writes a view: that of its name, or one next to it."""
        name = self._state.full_name(name)
        successor = f"{name}{SUCCESSOR_SUFFIX}"
        built = self._find(successor)
        if built is not None and built.maintained_by == group and not self._has_view(name, group):
            return self._tables.load(successor)
        info = self._tables.create(name, TableArguments(schema, comment=comment), "ignore", dry_run=False)
        if info.maintained_by in (None, group):
            return info
        if not replaces:
            require_owner(info, group)
        if built is not None:
            owner = f"consumer group {built.maintained_by!r} has it" if built.maintained_by else "no group has it"
            raise InvalidOperationError(
                f"the view {name!r} of consumer group {info.maintained_by!r} cannot be built again by {group!r}, because its "
                f"table would be {successor!r}, and there is one ({owner}): drop it, or use that group"
            )
        return self._create_successor(info, successor, schema, comment, group)

    def swap(self, name: str, other: str) -> TableInfo:
        """Exchange the tables of two views; return what is known of the first one afterwards."""
        name, other = self._state.full_name(name), self._state.full_name(other)
        if name == other:
            raise ArgumentValueError(f"swap_views() needs two views, got {name!r} twice")
        first, second = sorted((name, other))
        note = self._read_note(first)
        if note is not None and self._has_table(first, note.new_id) and self._has_table(note.other, note.new_id):
            self._complete(first, note)
            if note.other == second:
                return self._tables.load(name)
            note = None
        self._complete(first, self._begin(first, second, None if note is None else note.version))
        return self._tables.load(name)

    def _begin(self, first: str, second: str, expected: str | None) -> _Note:
        """Write the note, and give the first name the other table."""
        former, latter = self._require_view(first), self._require_view(second)
        self._require_apart(former.value, latter.value)
        document = {
            "v": _VERSION,
            "other": second,
            "former": orjson.loads(former.document),
            "new_id": latter.value.id,
        }
        version = self._objects.store.put(_note_key(first), dumped(_NOTE, first, document), expected)
        self._put(first, latter, former)
        return _Note(second, former.document, latter.value.id, version)

    def _complete(self, first: str, note: _Note) -> None:
        """Give the second name the former table of the first one, and delete the note."""
        second = note.other
        latter = self._require_view(second)
        former = self._objects.read(self._objects.tables, first, note.former)
        self._put(second, Found(former, "", note.former), latter)
        self._objects.store.delete(_note_key(first), note.version)
        groups = (str(former.maintained_by), str(latter.value.maintained_by))
        try:
            self._usages.exchange(first, second, groups)
        except StreamRTError as error:
            logger.warning("the catalogue does not learn that %s and %s were swapped: %s", first, second, error)
        for table, info in ((first, latter.value), (second, former)):
            logger.info("%s has the rows of consumer group %s in topic %s", table, info.maintained_by, info.topic)

    def _put(self, name: str, table: Found[TableInfo], present: Found[TableInfo]) -> None:
        """Give a name another table."""
        version = max(table.value.version, present.value.version) + 1
        value = replace(table.value, name=name, version=version, modified_at=now())
        self._objects.put(self._objects.tables, name, value, present.version, table)

    def _read_note(self, first: str) -> _Note | None:
        stored: Stored | None = self._objects.store.get(_note_key(first))
        if stored is None:
            return None
        try:
            document = orjson.loads(stored.value)
            if document["v"] == _VERSION:
                former = orjson.dumps(document["former"])
                return _Note(document["other"], former, document["new_id"], stored.version)
        except (orjson.JSONDecodeError, LookupError, TypeError):
            pass
        raise CatalogError(
            f"the note of a swap of {first!r} in the catalogue cannot be read: a newer version of StreamRT has begun it, or "
            "it is damaged"
        )

    def _require_view(self, name: str) -> Found[TableInfo]:
        found = self._objects.find(self._objects.tables, name)
        if found is None:
            raise self._state.no_table(name)
        if not found.value.is_view:
            raise InvalidOperationError(
                f"table {name!r} is not that of a materialized view whose application has started: only these are swapped"
            )
        return found

    def _require_apart(self, first: TableInfo, second: TableInfo) -> None:
        """Refuse two views of one group, and one whose swap with a third one is not complete."""
        for each in self._tables.infos():
            if each.id in (first.id, second.id) and each.name not in (first.name, second.name):
                name = first.name if each.id == first.id else second.name
                raise InvalidOperationError(
                    f"a swap of {name!r} and {each.name!r} was interrupted: repeat it first, which completes it"
                )
        group = first.maintained_by
        if group == second.maintained_by:
            raise InvalidOperationError(
                f"{first.name!r} and {second.name!r} are views of one consumer group, {group!r}, which would write the rows "
                "of each to the other one: build the new version with another consumer_group"
            )

    def _create_successor(
        self, info: TableInfo, name: str, schema: Schema, comment: str | None, group: str
    ) -> TableInfo:
        """Create an empty table next to that of a view, with its settings."""
        topic = self._choose_topic(info)
        is_alike = (info.kind == "primary-key") == bool(schema.primary_key)
        given = TableArguments(
            schema,
            topic,
            format=info.format,
            format_options=info.format_options,
            key_format=info.key_format,
            num_partitions=info.num_partitions,
            config=dict(info.config) if is_alike else None,
            comment=comment,
            properties=dict(info.properties),
        )
        made = self._tables.create(name, given, "ignore", dry_run=False)
        self._owners.claim(name, group)
        return replace(made, maintained_by=group)

    def _choose_topic(self, info: TableInfo) -> str:
        """Return the name of a topic for the rows of another version of a view, which must not have records.

        Raises:
            InvalidOperationError: if it has.
        """
        base, _, number = (info.topic or "").rpartition(".")
        is_later = base == info.name and number.isdecimal()
        topic = f"{info.name}.{int(number) + 1 if is_later else 2}"
        user = next((each.name for each in self._tables.infos() if each.topic == topic), None)
        if user is not None or (self._state.has_topics and self._has_records(topic)):
            raise InvalidOperationError(
                f"topic {topic!r}, in which another version of the view {info.name!r} is built, "
                f"{'has records' if user is None else f'is that of table {user!r}'}: delete it first"
            )
        return topic

    def _has_records(self, topic: str) -> bool:
        admin = self._state.links.admin()
        config = admin.inspect_topics([topic], self._state.timeout)[topic]
        if config is None:
            return False
        partitions = [TopicPartition(topic, number) for number in range(config.num_partitions or 1)]
        return any(high > 0 for _, high in admin.offset_bounds(partitions, self._state.timeout).values())

    def _has_table(self, name: str, table_id: str) -> bool:
        found = self._find(name)
        return found is not None and found.id == table_id

    def _has_view(self, name: str, group: str) -> bool:
        found = self._find(name)
        return found is not None and found.maintained_by == group

    def _find(self, name: str) -> TableInfo | None:
        found = self._objects.find(self._objects.tables, name)
        return None if found is None else found.value


def _note_key(first: str) -> str:
    return f"{_NOTE}/{first}"
