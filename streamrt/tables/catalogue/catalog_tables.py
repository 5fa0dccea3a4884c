"""The part of a catalogue that has tables."""

import contextlib
from dataclasses import replace

from streamrt.errors import (
    ArgumentValueError,
    CatalogConflictError,
    CatalogError,
    ConfigurationError,
    DatabaseNotEmptyError,
    InvalidOperationError,
    SchemaEvolutionError,
    TableExistsError,
    TableNotFoundError,
)
from streamrt.kafka import KafkaError, KafkaRequestError
from streamrt.tables.catalogue.alteration import TableChanges, altered
from streamrt.tables.catalogue.catalog_connections import CatalogConnections
from streamrt.tables.catalogue.catalog_databases import CatalogDatabases
from streamrt.tables.catalogue.catalog_state import DEFAULT_DATABASE, CatalogState
from streamrt.tables.catalogue.catalog_store import Stored
from streamrt.tables.catalogue.catalog_usages import CatalogUsages
from streamrt.tables.catalogue.creation import (
    TableArguments,
    change_topic,
    new_table,
    prepare_topic,
    resolved_topic,
    with_format_options,
)
from streamrt.tables.catalogue.objects import IfExists, IfMissing
from streamrt.tables.descriptions.changelog_tables import describe_changelog, is_changelog, strip_changelog_suffix
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.descriptions.naming import IF_EXISTS, IF_MISSING, check_choice, check_name
from streamrt.tables.writing.further_topics import list_further_topics

__all__ = ["CatalogTables"]

_ATTEMPTS = 5


class CatalogTables:
    """The tables of a catalogue; `Catalog` says what each method does."""

    def __init__(
        self,
        state: CatalogState,
        databases: CatalogDatabases,
        connections: CatalogConnections,
        usages: CatalogUsages,
    ) -> None:
        self._state = state
        self._objects = state.objects
        self._databases = databases
        self._connections = connections
        self._usages = usages

    def create(self, name: str, given: TableArguments, if_exists: IfExists, dry_run: bool) -> TableInfo:
        """Create a table, and its topic if there is none; return what is known of it."""
        check_choice("if_exists", if_exists, IF_EXISTS)
        name = self._state.full_name(name)
        found = self._objects.store.get(self._objects.tables.key(name))
        if found is not None and if_exists == "ignore":
            return self.load(name)
        if found is not None and if_exists == "error":
            raise _table_exists(name)
        self._databases.info(name.partition(".")[0])
        info = new_table(name, given, self._state.registry)
        if info.connection is not None:
            self._connections.find(info.connection)
        self._state.require_topic(info)
        resolved = resolved_topic(info)
        if info.maintenance is not None or (given.topic is not None and info.kind == "primary-key"):
            self._require_own_topic(info, resolved)
        self._objects.check(self._objects.tables, name, info)
        if dry_run:
            return replace(info, topic=resolved)
        if self._state.has_topics:
            info = prepare_topic(self._state.links, info, given.replication_factor, self._state.timeout)
        for _ in range(_ATTEMPTS):
            try:
                made = self._insert_table(self._with_owner(info, found), None if found is None else found.version)
            except CatalogConflictError:
                # Another program has created, changed or dropped it since.
                if if_exists == "error":
                    raise _table_exists(name) from None
                if if_exists == "ignore":
                    return self.load(name)
                found = self._objects.store.get(self._objects.tables.key(name))
            else:
                if found is not None:
                    self._objects.forget_history(found.value)
                return made
        raise CatalogConflictError(f"table {name!r} was changed by other programs again and again: repeat the call")

    def alter(self, name: str, changes: TableChanges) -> TableInfo:
        """Change a table, and return what is known of it afterwards."""
        name = self._state.full_name(name)
        changes.check()
        if changes.connection is not None:
            self._connections.find(changes.connection)

        def change(found: TableInfo | None) -> TableInfo:
            if found is None:
                raise self._state.no_table(name)
            made = altered(found, changes)
            made = with_format_options(made, self._state.registry)
            self._state.require_topic(made)
            self._objects.check(self._objects.tables, name, made)
            if made.schema_version != found.schema_version:
                self._require_registrable(made)
            if changes.config:
                change_topic(self._state.links, made, changes.config, self._state.timeout)
            if changes.topic is not None and self._state.has_topics:
                return prepare_topic(self._state.links, made, None, self._state.timeout)
            return made

        made = self._objects.change(self._objects.tables, name, change)
        assert made is not None  # noqa: S101 - `change` returns one
        return self._resolve_info(made)

    def drop(self, name: str, *, delete_data: bool = False, missing: IfMissing = "error", force: bool = False) -> None:
        """Drop a table."""
        check_choice("missing", missing, IF_MISSING)
        name = self._state.full_name(name)
        try:
            found = self._objects.find(self._objects.tables, name)
        except CatalogError:
            if not force:
                raise
            self._objects.delete_unread(self._objects.tables, name)
            return
        if found is None:
            if missing == "ignore":
                return
            raise self._state.no_table(name)
        if not force:
            self._usages.require_unused(name)
        topics = self._topics_to_delete(found.value) if delete_data else []
        self._objects.store.delete(self._objects.tables.key(name), found.version)
        self._objects.forget_history(found.document)
        if topics:
            self._state.links.admin().delete_topics(topics, self._state.timeout)

    def drop_database(self, name: str, *, cascade: bool, delete_data: bool, missing: IfMissing) -> None:
        """Drop a database, and its tables with `cascade`."""
        check_choice("missing", missing, IF_MISSING)
        if name == DEFAULT_DATABASE:
            raise InvalidOperationError(f"the database {DEFAULT_DATABASE!r} is always there: drop its tables")
        if check_name("database", name) not in self._databases.names():
            if missing == "ignore":
                return
            raise self._state.no_database(name)
        tables = self.names(name)
        if tables and not cascade:
            raise DatabaseNotEmptyError(
                f"database {name!r} has {len(tables)} tables, such as {tables[0]!r}: drop them first, or pass cascade=True"
            )
        for table in tables:
            self.drop(table, delete_data=delete_data, missing="ignore")
        dropped = self._objects.find(self._objects.databases, name)
        self._objects.change(self._objects.databases, name, lambda _: None)
        # Tables that others have created in the meantime would belong to nothing.
        late = self._objects.names(self._objects.tables, f"{name}.")
        if late and dropped is not None and not cascade:
            with contextlib.suppress(CatalogConflictError):
                self._objects.put(self._objects.databases, name, dropped.value, None, dropped)
            raise DatabaseNotEmptyError(f"database {name!r} has the new table {late[0]!r}: drop it first")
        for table in late:
            self.drop(table, delete_data=delete_data, missing="ignore")

    def load(self, name: str) -> TableInfo:
        """Return what is known of a table now, with the partitions that its topic has now."""
        is_log_of_changes = isinstance(name, str) and is_changelog(name)
        name = self._state.full_name(strip_changelog_suffix(name) if is_log_of_changes else name)
        found = self._objects.find(self._objects.tables, name)
        if found is None:
            raise self._state.no_table(name)
        info = self._resolve_info(found.value)
        if is_log_of_changes:
            info = describe_changelog(info)
        if info.topic is None or not self._state.has_topics:
            return info
        try:
            config = self._state.links.admin().inspect_topics([info.topic], self._state.timeout)[info.topic]
        except KafkaRequestError as error:
            # Settings of topics need another permission than their records.
            if error.code not in (
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            ):
                raise
            return info
        count = None if config is None else config.num_partitions
        created = None if count in (None, info.num_partitions) else info.num_partitions
        return replace(info, num_partitions=count, created_partitions=created)

    def names(self, database: str | None = None) -> list[str]:
        """Return the names of tables, sorted."""
        self._state.require_open()
        if database is None:
            return self._objects.names(self._objects.tables)
        if check_name("database", database) not in self._databases.names():
            raise self._state.no_database(database)
        return self._objects.names(self._objects.tables, f"{database}.")

    def infos(self, database: str | None = None) -> list[TableInfo]:
        """Return what is known of tables, sorted by name, without a look at their topics."""
        self.names(database)
        prefix = "" if database is None else f"{database}."
        return [
            self._resolve_info(info, strict=False) for info in self._objects.all(self._objects.tables, prefix).values()
        ]

    def contains(self, name: object) -> bool:
        """Return whether there is a table."""
        self._state.require_open()
        if isinstance(name, str) and is_changelog(name):
            try:
                return bool(self.load(name).topic)
            except (ArgumentValueError, TableNotFoundError):
                return False
        try:
            full = self._state.full_name(name)
        except ArgumentValueError:
            # No table can have such a name.
            return False
        return self._objects.store.get(self._objects.tables.key(full)) is not None

    def _require_own_topic(self, info: TableInfo, topic: str | None) -> None:
        """Refuse a second table on the topic of a maintained one: rows would get past the rules."""
        for other in self.infos():
            if other.topic == topic and other.name != info.name and (info.maintenance or other.maintenance):
                raise ConfigurationError(
                    f"topic {topic} is that of table {other.name!r}, and a maintained table has its topic for itself: choose "
                    "another topic"
                )

    def _require_registrable(self, info: TableInfo) -> None:
        """Ask the schema registry of a table whether it would take the schema: writers register it with their first row."""
        resolved = self._resolve_info(info)
        if (
            resolved.topic is None
            or resolved.schema is None
            or self._state.row_format(resolved).is_registrable(resolved.topic)
        ):
            return
        raise SchemaEvolutionError(
            f"the schema registry would refuse the schema of table {info.name!r}, because it is not compatible with "
            f"those that topic {resolved.topic!r} had: change it, or the compatibility level of the subject"
        )

    def _resolve_info(self, info: TableInfo, strict: bool = True) -> TableInfo:
        try:
            self._state.require_topic(info)
            return replace(info, topic=resolved_topic(info))
        except ConfigurationError:
            if strict:
                raise
            return info

    def _with_owner(self, info: TableInfo, found: Stored | None) -> TableInfo:
        """Return a table with the group that maintains it; a description that is replaced does not end its work."""
        if found is None:
            return info
        with contextlib.suppress(CatalogError):
            former = self._objects.find(self._objects.tables, info.name)
            if former is not None and (former.value.maintenance is None) == (info.maintenance is None):
                return replace(info, maintained_by=former.value.maintained_by)
        return info

    def _insert_table(self, info: TableInfo, expected: str | None) -> TableInfo:
        version = self._objects.put(self._objects.tables, info.name, info, expected)
        database = info.name.partition(".")[0]
        if database not in self._databases.names():
            # It was dropped in the meantime. What another program has made of the table since is not ours.
            with contextlib.suppress(CatalogConflictError):
                self._objects.store.delete(self._objects.tables.key(info.name), version)
            raise self._state.no_database(database)
        return self._resolve_info(info)

    def _topics_to_delete(self, info: TableInfo) -> list[str]:
        self._state.require_topic(info)
        topic = resolved_topic(info)
        if topic is None:
            raise InvalidOperationError(f"the rows of table {info.name!r} are in another system: delete them there")
        others = [each.name for each in self.infos() if each.topic == topic and each.name != info.name]
        if others:
            raise InvalidOperationError(
                f"topic {topic} of table {info.name!r} is the topic of table {others[0]!r}, too: drop without "
                "delete_data=True"
            )
        admin = self._state.links.admin()
        further = list_further_topics(replace(info, topic=topic))
        present = admin.inspect_topics(further, self._state.timeout) if further else {}
        return [topic, *(name for name in further if present[name] is not None)]


def _table_exists(name: str) -> TableExistsError:
    return TableExistsError(
        f"table {name!r} exists already: choose another name, or pass if_exists='ignore' or 'replace'"
    )
