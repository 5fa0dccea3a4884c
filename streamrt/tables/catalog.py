"""`Catalog`: databases and tables by name, for any process."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from streamrt.errors import (
    ArgumentValueError,
    CatalogConflictError,
    CatalogError,
    ConfigurationError,
    InvalidOperationError,
    SchemaEvolutionError,
    TableExistsError,
)
from streamrt.kafka import KafkaError, KafkaRequestError
from streamrt.serializers.row_formats import KeyFormat, RowFormat, key_format, row_format
from streamrt.tables.alteration import altered, changed_schema
from streamrt.tables.catalog_base import DEFAULT_DATABASE
from streamrt.tables.catalog_connections import CatalogConnections
from streamrt.tables.catalog_databases import CatalogDatabases
from streamrt.tables.catalog_transfer import CatalogTransfer
from streamrt.tables.catalog_usages import CatalogUsages
from streamrt.tables.connectors import Connector, table_connector
from streamrt.tables.creation import (
    TableArguments,
    change_topic,
    new_table,
    prepare_topic,
    refuse_later_arguments,
    resolved_topic,
    with_format_options,
)
from streamrt.tables.info import TableInfo
from streamrt.tables.naming import (
    IF_EXISTS,
    IF_MISSING,
    check_changes,
    check_choice,
    check_count,
    check_name,
    check_text,
)
from streamrt.tables.objects import IfExists, IfMissing
from streamrt.tables.refusals import CatalogRefusals
from streamrt.tables.table import Table

if TYPE_CHECKING:
    from streamrt.tables.statements import Execution

__all__ = ["DEFAULT_DATABASE", "Catalog"]

_ATTEMPTS = 5


class Catalog(CatalogDatabases, CatalogConnections, CatalogUsages, CatalogTransfer, CatalogRefusals):
    """Databases and tables by name. It may be used in any thread, and with `with`.

    Names of tables are `<database>.<table>`, or those of the default database alone.

    Args:
        broker_address: `host:port`, or a `ConnectionConfig`; None for a catalogue without topics.
        store: where the catalogue is: `KafkaCatalog()` by default, `FileCatalog(directory)` or `MemoryCatalog()`.
        database: the database of names without one. "default" is there without being created.
        timeout: seconds to wait for answers.
        connect: whether to fail at once if no broker answers; by default, connections are opened at first use.
        schema_registry: connection to a schema registry, for formats that use one.
        links: how topics are reached, instead of a broker's address, such as topics in memory in tests.

    Raises:
        ConfigurationError: if neither a broker nor a store is given.
        KafkaBrokerUnavailableError: if no broker answers, with `connect`.

    Example:
        >>> from streamrt.tables import MemoryCatalog
        >>> with Catalog(store=MemoryCatalog()) as catalog:
        ...     _ = catalog.create_database("shop")
        ...     orders = catalog.create_table("shop.orders", "id BIGINT, customer STRING", key=["customer"])
        ...     catalog.tables("shop"), orders.schema.names
        (['shop.orders'], ('id', 'customer'))
    """

    def create_table(
        self,
        name: str,
        schema: Any = None,
        *,
        topic: str | None = None,
        connector: Connector | None = None,
        connection: str | None = None,
        format: str | RowFormat = "json",  # noqa: A002 - the word of SQL
        format_options: Mapping[str, Any] | None = None,
        key: Sequence[str] | None = None,
        key_format: str = "json",
        time: str | None = None,
        num_partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
        maintained: bool | None = None,
        merge: Any = "last",
        deletes: str = "allow",
        changelog: bool = False,
        ttl: timedelta | None = None,
        comment: str | None = None,
        properties: Mapping[str, str] | None = None,
        if_exists: IfExists = "error",
        dry_run: bool = False,
    ) -> Table:
        """Create a table, and its topic if there is none.

        Args:
            name: `<database>.<table>`, or a name in the default database.
            schema: a `Schema`, or what one is made of; None if it is set later.
            topic: name of the topic, with variables such as `${env:STAGE}`; by default the name of the table. A topic that
                exists is used as it is.
            connector: where the rows are instead, such as `HTTPSSE(url)`.
            connection: name of the catalogue's connection, for connectors that need one.
            format: how rows are bytes: a name such as "json" or "avro", or a `RowFormat`.
            format_options: settings of a format that is given by name.
            key: columns whose values are the key of a record; the primary key if the schema has one.
            key_format: how keys are bytes.
            time: column with the event time, unless the schema names it.
            num_partitions: number of partitions of a new topic.
            replication_factor: number of replicas of a new topic.
            config: settings of a new topic, such as `{"retention.ms": "604800000"}`.
            maintained: refused, as `merge`, `deletes`, `changelog` and `ttl`: primary-key tables are not maintained yet.
            merge: see `maintained`.
            deletes: see `maintained`.
            changelog: see `maintained`.
            ttl: see `maintained`.
            comment: what a row means.
            properties: texts of your own.
            if_exists: what happens if the table exists: "error", "ignore" returns it, "replace" describes it anew; its
                records stay.
            dry_run: whether to check the arguments, and create nothing.

        Raises:
            TableExistsError: if the table exists.
            DatabaseNotFoundError: if there is no such database.
            SchemaError: if the schema cannot be used, or the format cannot carry it.
            ConfigurationError: if arguments do not go together.
            TopicConfigurationError: if the topic that exists cannot hold the table.
        """
        refuse_later_arguments(
            maintained=(maintained, False),
            merge=(merge, "last"),
            deletes=(deletes, "allow"),
            changelog=(changelog, False),
            ttl=(ttl, None),
        )
        check_choice("if_exists", if_exists, IF_EXISTS)
        name = self._full(name)
        found = self._objects.store.get(self._objects.tables.key(name))
        if found is not None and if_exists == "ignore":
            return self.table(name)
        if found is not None and if_exists == "error":
            raise self._table_exists(name)
        self.database(name.partition(".")[0])
        given = TableArguments(
            *(schema, topic, connector, connection, format, format_options, key, key_format, time),
            *(num_partitions, replication_factor, config, comment, properties),
        )
        info = new_table(name, given, self._registry)
        if info.connection is not None:
            self.connection(info.connection)
        resolved = resolved_topic(info)
        self._objects.check(self._objects.tables, name, info)
        if dry_run:
            return Table(replace(info, topic=resolved), self)
        if self._links is not None:
            info = prepare_topic(self.links, info, replication_factor, self._timeout)
        for _ in range(_ATTEMPTS):
            try:
                made = self._insert(info, None if found is None else found.version)
            except CatalogConflictError:
                # Another program has created, changed or dropped it since.
                if if_exists == "error":
                    raise self._table_exists(name) from None
                if if_exists == "ignore":
                    return self.table(name)
                found = self._objects.store.get(self._objects.tables.key(name))
            else:
                if found is not None:
                    self._objects.forget_history(found.value)
                return made
        raise CatalogConflictError(f"table {name!r} was changed by other programs again and again: repeat the call")

    def alter_table(
        self,
        name: str,
        *,
        add: Any = None,
        drop: Sequence[str] = (),
        widen: Mapping[str, str] | None = None,
        schema: Any = None,
        topic: str | None = None,
        url: str | None = None,
        connection: str | None = None,
        comment: str | None = None,
        properties: Mapping[str, str | None] | None = None,
        config: Mapping[str, str | None] | None = None,
        expect: int | None = None,
        force: bool = False,
    ) -> TableInfo:
        """Change a table. Each change of the schema is a new version of it; rows of earlier versions stay readable.

        Args:
            name: the table.
            add: columns to add: a text such as `"x BIGINT COMMENT '...'"`, or a mapping for each.
            drop: names of columns to drop.
            widen: wider types by the names of columns.
            schema: a whole new schema, instead of these; also a list of columns, or `{"columns": [...]}`.
            topic: another topic.
            url: another URL.
            connection: another connection.
            comment: another comment; an empty text removes it.
            properties: properties that change; None removes one.
            config: settings of the topic that change, such as `{"retention.ms": "3600000"}`; None returns to the cluster's.
                The topic is changed before the catalogue.
            expect: `version` that the table must have; by default, changes of others are kept.
            force: whether rows that exist need not fit the new schema: they cannot be read any more, then.

        Returns:
            What is known of the table afterwards.

        Raises:
            TableNotFoundError: if there is none.
            SchemaEvolutionError: if rows that exist would not fit, with all reasons, or the table's schema registry would
                refuse the schema (Avro, Protobuf; `force` does not change that).
            SchemaRegistryError: if the registry cannot be asked.
            CatalogConflictError: if the table has another version than expected.
            KafkaRequestError: if the brokers refuse a setting.
        """
        name = self._full(name)
        check_count("alter_table(expect=...)", expect)
        for word, text in (("topic", topic), ("url", url), ("comment", comment)):
            check_text(f"alter_table({word}=...)", text)
        for word, changes in (("properties", properties), ("config", config)):
            check_changes(f"alter_table({word}=...)", changes)
        options = {word: value for word, value in (("topic", topic), ("url", url)) if value is not None}
        if connection is not None:
            self.connection(connection)

        def change(found: TableInfo | None) -> TableInfo:
            if found is None:
                raise self._no_table(name)
            if expect is not None and found.version != expect:
                raise CatalogConflictError(
                    f"table {name!r} has version {found.version} and not {expect}: read it again, and repeat the change"
                )
            wanted = changed_schema(found, add, drop, widen, schema)
            made = altered(
                found,
                wanted,
                force=force,
                options=options,
                connection=connection,
                comment=comment,
                properties=properties,
                config=config,
            )
            made = with_format_options(made, self._registry)
            self._objects.check(self._objects.tables, name, made)
            if made.schema_version != found.schema_version:
                self._require_registrable(made)
            if config:
                change_topic(self.links, made, config, self._timeout)
            if topic is not None and self._links is not None:
                return prepare_topic(self.links, made, None, self._timeout)
            return made

        made = self._objects.change(self._objects.tables, name, change)
        assert made is not None  # noqa: S101 - `change` returns one
        return self._resolved(made)

    def _require_registrable(self, info: TableInfo) -> None:
        """Ask the schema registry of a table whether it would take the schema: writers register it with their first row."""
        resolved = self._resolved(info)
        if (
            resolved.topic is None
            or resolved.schema is None
            or self.row_format(resolved).is_registrable(resolved.topic)
        ):
            return
        raise SchemaEvolutionError(
            f"the schema registry would refuse the schema of table {info.name!r}, because it is not compatible with "
            f"those that topic {resolved.topic!r} had: change it, or the compatibility level of the subject"
        )

    def set_schema(self, name: str, schema: Any, force: bool = False) -> TableInfo:
        """Give a table another schema; see `alter_table`."""
        return self.alter_table(name, schema=schema, force=force)

    def drop_table(
        self, name: str, *, delete_data: bool = False, missing: IfMissing = "error", force: bool = False
    ) -> None:
        """Drop a table.

        Args:
            name: the table.
            delete_data: whether its topic is deleted, with all records.
            missing: what happens if there is none: "error" or "ignore".
            force: whether it is dropped although a running application uses it, or its record cannot be read.

        Raises:
            TableNotFoundError: if there is none.
            CatalogError: if a running application uses it, or its record cannot be read.
            InvalidOperationError: if the data cannot be deleted: it is in another system, or another table has its topic.
        """
        check_choice("missing", missing, IF_MISSING)
        name = self._full(name)
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
            raise self._no_table(name)
        if not force:
            self._refuse_if_used(name)
        topic = self._topic_to_delete(found.value) if delete_data else None
        self._objects.store.delete(self._objects.tables.key(name), found.version)
        self._objects.forget_history(found.document)
        if topic is not None:
            self.links.admin().delete_topics([topic], self._timeout)

    def table(self, name: str) -> Table:
        """Return a table.

        Raises:
            TableNotFoundError: if there is none.
            CatalogError: if its record cannot be read.
        """
        return Table(self.load(self._full(name)), self)

    def load(self, name: str) -> TableInfo:
        """Return what is known of a table now, with the partitions that its topic has now.

        Raises:
            TableNotFoundError: if there is none.
        """
        name = self._full(name)
        found = self._objects.find(self._objects.tables, name)
        if found is None:
            raise self._no_table(name)
        info = self._resolved(found.value)
        if info.topic is None or self._links is None:
            return info
        try:
            config = self.links.admin().inspect_topics([info.topic], self._timeout)[info.topic]
        except KafkaRequestError as error:
            # Settings of topics need another permission than their records.
            if error.code not in (
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            ):
                raise
            return info
        return replace(info, num_partitions=None if config is None else config.num_partitions)

    def tables(self, database: str | None = None) -> list[str]:
        """Return the names of tables, sorted.

        Args:
            database: the database; None for all.

        Raises:
            DatabaseNotFoundError: if there is no such database.
        """
        self._require_open()
        if database is None:
            return self._objects.names(self._objects.tables)
        if check_name("database", database) not in self.databases():
            raise self._no_database(database)
        return self._objects.names(self._objects.tables, f"{database}.")

    def infos(self, database: str | None = None) -> list[TableInfo]:
        """Return what is known of tables, sorted by name, without a look at their topics.

        Tables whose records cannot be read are left out, with a warning. Topics with variables that are not set are shown
        as they were given.
        """
        self.tables(database)
        prefix = "" if database is None else f"{database}."
        return [self._resolved(info, strict=False) for info in self._objects.all(self._objects.tables, prefix).values()]

    def __contains__(self, name: object) -> bool:
        self._require_open()
        try:
            full = self._full(name)
        except ArgumentValueError:
            # No table can have such a name.
            return False
        return self._objects.store.get(self._objects.tables.key(full)) is not None

    def row_format(self, info: TableInfo) -> RowFormat:
        """Return the format of the rows of a table that has a schema."""
        # A table without a schema raises here.
        return row_format(info.format, Table(info, self).schema, info.format_options, self._registry)

    def key_format(self, info: TableInfo) -> KeyFormat | None:
        """Return the format of the keys, or None if records have none."""
        if info.schema is None or not info.key:
            return None
        return key_format(info.key_format, info.schema, info.key)

    def connector(self, info: TableInfo) -> Connector:
        """Return where the rows of a table are, with the values of variables; references to secrets stay.

        Raises:
            ConfigurationError: if a variable is not set.
        """
        return table_connector(info).resolved()

    def execute(self, sql: str, args: Mapping[str, Any] | None = None) -> "Execution":
        """Do what a statement says: CREATE, ALTER and DROP TABLE, CREATE and DROP DATABASE.

        Args:
            sql: one statement; see docs/catalog.md.
            args: values of the parameters in it, such as `:topic`, by name: texts, and integers for options. Comments and
                values of options may be parameters.

        Raises:
            SchemaError: if it is another statement, or cannot be read; the message has line and column.
            ArgumentValueError: if a value is for no parameter.

        Example:
            >>> from streamrt.tables import MemoryCatalog
            >>> catalog = Catalog(store=MemoryCatalog())
            >>> catalog.execute("CREATE TABLE orders (id BIGINT) WITH ('format' = 'json', 'partitions' = '4')").name
            'default.orders'
        """
        from streamrt.tables.statements import execute

        self._require_open()
        return execute(self, sql, args)

    def _resolved(self, info: TableInfo, strict: bool = True) -> TableInfo:
        try:
            return replace(info, topic=resolved_topic(info))
        except ConfigurationError:
            if strict:
                raise
            return info

    def _insert(self, info: TableInfo, expected: str | None) -> Table:
        version = self._objects.put(self._objects.tables, info.name, info, expected)
        database = info.name.partition(".")[0]
        if database not in self.databases():
            # It was dropped in the meantime. What another program has made of the table since is not ours.
            with contextlib.suppress(CatalogConflictError):
                self._objects.store.delete(self._objects.tables.key(info.name), version)
            raise self._no_database(database)
        return Table(self._resolved(info), self)

    def _topic_to_delete(self, info: TableInfo) -> str:
        topic = resolved_topic(info)
        if topic is None:
            raise InvalidOperationError(f"the rows of table {info.name!r} are in another system: delete them there")
        others = [each.name for each in self.infos() if each.topic == topic and each.name != info.name]
        if others:
            raise InvalidOperationError(
                f"topic {topic} of table {info.name!r} is the topic of table {others[0]!r}, too: drop without "
                "delete_data=True"
            )
        self.links.admin()
        return topic

    def _table_exists(self, name: str) -> TableExistsError:
        return TableExistsError(
            f"table {name!r} exists already: choose another name, or pass if_exists='ignore' or 'replace'"
        )
