"""`Catalog`: databases and tables by name, for any process."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from typing_extensions import Self

from streamrt.errors import InvalidOperationError, suggest_arguments
from streamrt.kafka import ConnectionConfig
from streamrt.kafka.cluster.topic_config import Broker
from streamrt.kafka.completion_token import Offsets
from streamrt.schema import Schema
from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.access.links import TableLinks
from streamrt.tables.access.shared_resources import SharedResources
from streamrt.tables.catalogue.alteration import TableChanges
from streamrt.tables.catalogue.catalog_connections import CatalogConnections
from streamrt.tables.catalogue.catalog_databases import CatalogDatabases
from streamrt.tables.catalogue.catalog_state import DEFAULT_DATABASE, CatalogState
from streamrt.tables.catalogue.catalog_store import CatalogStore
from streamrt.tables.catalogue.catalog_tables import CatalogTables
from streamrt.tables.catalogue.catalog_transfer import CatalogTransfer
from streamrt.tables.catalogue.catalog_usages import CatalogUsages
from streamrt.tables.catalogue.creation import TableArguments
from streamrt.tables.catalogue.objects import IfExists, IfMissing
from streamrt.tables.catalogue.table_owners import TableOwners
from streamrt.tables.catalogue.view_tables import ViewTables
from streamrt.tables.descriptions.connections import Connection
from streamrt.tables.descriptions.connectors import Connector
from streamrt.tables.descriptions.info import DatabaseInfo, TableInfo
from streamrt.tables.descriptions.maintenance import Deletes, Merge
from streamrt.tables.descriptions.permissions import TablePermissions
from streamrt.tables.descriptions.rule_checks import choose_maintenance
from streamrt.tables.descriptions.usages import ApplicationInfo, Lineage, Usage
from streamrt.tables.table import Table

if TYPE_CHECKING:
    from streamrt.serializers.registry import SchemaRegistryClientConfig
    from streamrt.tables.catalogue.query_engine import Engine
    from streamrt.tables.catalogue.statements import Execution
    from streamrt.tables.reading.query_result import QueryResult

__all__ = ["DEFAULT_DATABASE", "Catalog"]


class Catalog:
    """Databases and tables by name. It may be used in any thread, and with `with`.

    Names of tables are `<database>.<table>`, or only `<table>` for the default database.

    Args:
        broker_address: `host:port`, or a `ConnectionConfig`; None for a catalogue without topics.
        store: where the catalogue is: `KafkaCatalog()` by default, `FileCatalog(directory)` or `MemoryCatalog()`.
        database: the database of names without one. "default" is there without being created.
        timeout: seconds to wait for answers.
        connect: whether to fail at once if no broker answers; by default, connections are opened at first use.
        schema_registry: connection to a schema registry, for formats that use one.
        links: how topics are reached, instead of a broker's address, such as topics in memory in tests.
        allow: what tables may use of this process, as grants such as "host:rides.example", "env:STAGE" or
            "secret:env:RIDES_TOKEN@rides.example"; see docs/table-grants.md. By default, tables of a `KafkaCatalog` may use
            what the environment variable `STREAMRT_TABLES_ALLOW` lists, and those of other catalogues of StreamRT everything.

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

    def __init__(
        self,
        broker_address: str | ConnectionConfig | None = None,
        *,
        store: CatalogStore | None = None,
        database: str = DEFAULT_DATABASE,
        timeout: float = 30.0,
        connect: bool = False,
        schema_registry: "SchemaRegistryClientConfig | None" = None,
        links: TableLinks | None = None,
        allow: Iterable[str] | None = None,
    ) -> None:
        self._state = CatalogState(
            broker_address,
            store=store,
            database=database,
            timeout=timeout,
            schema_registry=schema_registry,
            links=links,
            allow=allow,
        )
        self._connections = CatalogConnections(self._state)
        self._databases = CatalogDatabases(self._state)
        self._usages = CatalogUsages(self._state)
        self._owners = TableOwners(self._state)
        self._tables = CatalogTables(self._state, self._databases, self._connections, self._usages)
        self._views = ViewTables(self._state, self._tables, self._owners, self._usages)
        self._transfer = CatalogTransfer(self._state, self._databases)
        if connect:
            self._state.check_connection()

    @property
    def links(self) -> TableLinks:
        """How topics are reached.

        Raises:
            InvalidOperationError: if the catalogue is closed, or has no broker.
        """
        return self._state.links

    @property
    def resources(self) -> SharedResources:
        """What tables of this catalogue share, such as the copies of their rows that lookups use."""
        return self._state.resources

    @property
    def schema_registry(self) -> "SchemaRegistryClientConfig | None":
        """Connection to the schema registry of formats that use one, or None."""
        return self._state.registry

    @property
    def permissions(self) -> TablePermissions:
        """The parts of this process that tables may use."""
        return self._state.permissions

    @property
    def timeout(self) -> float:
        """Seconds to wait for answers."""
        return self._state.timeout

    def close(self) -> None:
        """Close the connections. Tables of a closed catalogue raise InvalidOperationError."""
        self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def brokers(self) -> list[Broker]:
        """Return the brokers of the cluster that answer.

        Raises:
            KafkaRequestError: if no broker answers in time.
            InvalidOperationError: if the catalogue has no broker.
        """
        return self._state.brokers()

    def create_database(
        self,
        name: str,
        *,
        comment: str | None = None,
        properties: Mapping[str, str] | None = None,
        if_exists: IfExists = "error",
    ) -> DatabaseInfo:
        """Create a database.

        Args:
            name: its name: letters, digits, `_` and `-`.
            comment: what it is for.
            properties: strings of your own.
            if_exists: what happens if it exists: "error", "ignore" leaves it, "replace" gives it this comment and these
                properties; tables stay.

        Raises:
            DatabaseExistsError: if it exists.
        """
        return self._databases.create(name, comment, properties, if_exists)

    def drop_database(
        self, name: str, *, cascade: bool = False, delete_data: bool = False, missing: IfMissing = "error"
    ) -> None:
        """Drop a database.

        Args:
            name: its name.
            cascade: whether its tables are also dropped.
            delete_data: whether their topics are deleted, with all records.
            missing: what happens if there is none: "error" or "ignore".

        Raises:
            DatabaseNotFoundError: if there is none.
            DatabaseNotEmptyError: if it has tables, without `cascade`.
            CatalogError: if a running application uses one of its tables.
        """
        self._tables.drop_database(name, cascade=cascade, delete_data=delete_data, missing=missing)

    def databases(self) -> list[str]:
        """Return the names of the databases, sorted."""
        return self._databases.names()

    def database(self, name: str) -> DatabaseInfo:
        """Return what is known of a database.

        Raises:
            DatabaseNotFoundError: if there is none.
        """
        return self._databases.info(name)

    def add_connection(self, name: str, connection: Connection, *, if_exists: IfExists = "error") -> None:
        """Add a connection, which tables name.

        Args:
            name: its name.
            connection: the connection, with references to secrets.
            if_exists: what happens if there is one: "error", "ignore" or "replace".

        Raises:
            CatalogError: if there is one of this name.
            ConfigurationError: if it has a secret, or is one to Kafka.
        """
        self._connections.add(name, connection, if_exists)

    def connection(self, name: str) -> Connection:
        """Return a connection.

        Raises:
            ConfigurationError: if there is none.
        """
        return self._connections.find(name)

    def connections(self) -> list[str]:
        """Return the names of the connections, sorted."""
        return self._connections.names()

    def drop_connection(self, name: str) -> None:
        """Remove a connection that no table names.

        Raises:
            ConfigurationError: if there is none.
            CatalogError: if a table names it.
        """
        self._connections.drop(name)

    @suggest_arguments
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
        merge: Merge = "last",
        deletes: Deletes | None = None,
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
            maintained: whether writes are requests, which an application merges into rows (docs/partial-updates.md). It
                follows from the other rules: `merge`, `deletes`, `changelog` and `ttl`.
            merge: what an upsert does: "last" sets the columns that are given, "first" counts only without a row,
                `Versioned(column)`, `SequenceGroups(groups)` or `Aggregate(column=function)`.
            deletes: what a delete does: "allow", "ignore", or "refuse" by an error of the writer; by default "allow" if
                `merge` is "last", and "ignore" otherwise.
            changelog: whether all changes are also written to the log table `<name>$changelog`.
            ttl: for how long a row is kept that is not written again; None for ever.
            comment: what a row means.
            properties: strings of your own.
            if_exists: what happens if the table exists: "error", "ignore" returns it, "replace" describes it again; its
                records stay.
            dry_run: whether to check the arguments, and create nothing.

        Raises:
            TableExistsError: if the table exists.
            DatabaseNotFoundError: if there is no such database.
            SchemaError: if the schema cannot be used, or the format cannot carry it.
            ConfigurationError: if arguments do not go together.
            TopicConfigurationError: if the topic that exists cannot hold the table.
        """
        given = TableArguments(
            *(schema, topic, connector, connection, format, format_options, key, key_format, time),
            *(num_partitions, replication_factor, config, comment, properties),
            choose_maintenance(maintained, merge, deletes, changelog, ttl),
        )
        return Table(self._tables.create(name, given, if_exists, dry_run), self)

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
            force: whether rows that exist need not fit the new schema: then they cannot be read any more.

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
        return self._tables.alter(
            name,
            TableChanges(add, drop, widen, schema, topic, url, connection, comment, properties, config, expect, force),
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
            delete_data: whether its topic is deleted, with all records, and also those of its requests and changes.
            missing: what happens if there is none: "error" or "ignore".
            force: whether it is dropped although a running application uses it, or its record cannot be read.

        Raises:
            TableNotFoundError: if there is none.
            CatalogError: if a running application uses it, or its record cannot be read.
            InvalidOperationError: if the data cannot be deleted: it is in another system, or another table has its topic.
        """
        self._tables.drop(name, delete_data=delete_data, missing=missing, force=force)

    def table(self, name: str) -> Table:
        """Return a table.

        Raises:
            TableNotFoundError: if there is none.
            CatalogError: if its record cannot be read.
        """
        return Table(self.load(name), self)

    def load(self, name: str) -> TableInfo:
        """Return what is known of a table now, with the partitions that its topic has now.

        Raises:
            TableNotFoundError: if there is none.
        """
        return self._tables.load(name)

    def tables(self, database: str | None = None) -> list[str]:
        """Return the names of tables, sorted.

        Args:
            database: the database; None for all.

        Raises:
            DatabaseNotFoundError: if there is no such database.
        """
        return self._tables.names(database)

    def infos(self, database: str | None = None) -> list[TableInfo]:
        """Return what is known of tables, sorted by name, without a look at their topics.

        Tables whose records cannot be read are left out, with a warning. Topics with variables that are not set are shown
        as they were given.
        """
        return self._tables.infos(database)

    def __contains__(self, name: object) -> bool:
        return self._tables.contains(name)

    def row_format(self, info: TableInfo) -> RowFormat:
        """Return the format of the rows of a table that has a schema."""
        return self._state.row_format(info)

    def key_format(self, info: TableInfo) -> KeyFormat | None:
        """Return the format of the keys, or None if records have none."""
        return self._state.key_format(info)

    def connector(self, info: TableInfo) -> Connector:
        """Return where the rows of a table are, with the values of variables; references to secrets stay.

        Raises:
            ConfigurationError: if a variable is not set.
        """
        from streamrt.tables.endpoints.endpoints import connected

        return connected(info, self)

    def execute(self, sql: str, args: Mapping[str, Any] | None = None, *, timeout: float | None = 60.0) -> "Execution":
        """Do what a statement says: CREATE, ALTER and DROP TABLE, CREATE and DROP DATABASE; INSERT, UPDATE and DELETE.

        ALTER MATERIALIZED VIEW is `swap_views`.

        INSERT into a table with a primary key replaces rows with the same key. UPDATE and DELETE are for such tables: they
        query the rows, and then write them, without isolation from writers in between. A DELETE whose WHERE only fixes keys
        reads nothing. See docs/catalog.md and docs/sql-queries.md.

        Args:
            sql: one statement.
            args: values of the parameters in it, such as `:topic`, by name. In statements of the catalogue they are strings,
                and integers for options, and stand for comments and values of options.
            timeout: seconds that INSERT, UPDATE and DELETE may read; None for any time.

        Raises:
            SchemaError: if it is another statement of the catalogue, or cannot be read; the message has line and column.
            SQLError: if INSERT, UPDATE or DELETE cannot be read, or asks for what is not possible.
            ArgumentValueError: if a value is for no parameter.
            InvalidOperationError: if UPDATE or DELETE names a table without a primary key.
            ConfigurationError: if a query is needed, and DuckDB is not installed.

        Example:
            >>> from streamrt.tables import MemoryCatalog
            >>> catalog = Catalog(store=MemoryCatalog())
            >>> catalog.execute("CREATE TABLE orders (id BIGINT) WITH ('format' = 'json', 'partitions' = '4')").name
            'default.orders'
        """
        from streamrt.tables.catalogue.query_engine import load_query_engine
        from streamrt.tables.catalogue.statements import changes_rows, execute

        self._state.require_open()
        if changes_rows(sql):
            return load_query_engine().execute(self, sql, args, timeout=timeout)
        return execute(self, sql, args)

    def record_usage(
        self,
        application: str,
        *,
        reads: Iterable[str] = (),
        writes: Iterable[str] = (),
        maintains: Iterable[str] = (),
    ) -> None:
        """Note what an application uses, in place of what was noted before; applications do it when they start.

        Args:
            application: its consumer group.
            reads: names of the tables that it reads.
            writes: names of the tables that it writes.
            maintains: names of the tables whose requests it merges.

        Raises:
            CatalogError: if the catalogue cannot be changed.
        """
        self._usages.record(application, reads, writes, maintains)

    def claim_table(self, name: str, group: str) -> None:
        """Note that an application maintains a table; it does so when it starts.

        These are the tables of its `maintain()`, and those of its materialized views, to which others cannot write.

        Args:
            name: the table.
            group: the consumer group of the application.

        Raises:
            InvalidOperationError: if another group maintains the table, or its rows are in another system.
            TableNotFoundError: if there is no such table.
            CatalogError: if the catalogue cannot be changed.
        """
        self._owners.claim(name, group)

    def release_table(self, name: str) -> str | None:
        """Let another application maintain a table, or have its materialized view in it.

        It continues behind the requests that are merged. A view makes its rows again, over those that are there.

        Args:
            name: the table.

        Returns:
            The consumer group that has maintained the table; None if there was none.

        Raises:
            InvalidOperationError: if that group has members, or the rows are in another system.
            TableNotFoundError: if there is no such table.
            CatalogError: if the catalogue cannot be changed.
        """
        return self._owners.release(name)

    def open_view(
        self, name: str, schema: Schema, group: str, *, comment: str | None = None, replaces: bool = False
    ) -> Table:
        """Return the table to which an application writes a materialized view; it is created if there is none.

        Args:
            name: the view.
            schema: its columns.
            group: the consumer group of the application.
            comment: what a row means, if the table is created.
            replaces: whether it is CREATE OR REPLACE: if another group has the view, the table is `<name>_next`, on a topic
                of its own, until `swap_views`.

        Raises:
            InvalidOperationError: if another group has the view, or, with `replaces`, the table next to it.
            CatalogError: if the catalogue cannot be changed.
        """
        return Table(self._views.open(name, schema, comment, group, replaces), self)

    def swap_views(self, name: str, other: str) -> TableInfo:
        """Exchange the tables of two materialized views of different applications, with columns, topics and groups.

        The applications go on, each with its own rows. Readers of a name see either the rows of before or the other ones:
        queries and lookups from then on, subscriptions and applications when they are started again, which an error tells
        them. See docs/changed-views.md.

        Args:
            name: one of them.
            other: the other one.

        Returns:
            What is known of `name` afterwards.

        Raises:
            InvalidOperationError: if one is not a view that an application maintains, or both are of one consumer group.
            TableNotFoundError: if there is no such table.
            CatalogConflictError: if another program has changed one of them meanwhile; repeat it.
            CatalogError: if the catalogue cannot be changed.
        """
        return self._views.swap(name, other)

    def forget_usage(self, application: str) -> None:
        """Delete what was noted of an application, if anything was: it is gone, or will note it again when it starts.

        Args:
            application: its consumer group.
        """
        self._usages.forget(application)

    def applications(self) -> list[ApplicationInfo]:
        """Return the applications that use tables, sorted by name, as they said at their last starts."""
        return self._usages.applications()

    def usages(self, name: str) -> list[Usage]:
        """Return which applications read, write and maintain a table, as they said at their last starts.

        Raises:
            TableNotFoundError: if there is no such table.
        """
        return self._usages.of(name)

    def lineage(self) -> Lineage:
        """Return where rows come from and go: tables, and the applications that read and write them."""
        return self._usages.lineage()

    def export(self) -> dict[str, Any]:
        """Return databases, connections and tables as one document for JSON, without records and usages, and without secrets.

        Objects that cannot be read are left out, with a warning for each.
        """
        return self._transfer.export()

    def import_objects(self, document: Mapping[str, Any], *, if_exists: IfExists = "error") -> list[str]:
        """Add what `export` has returned, and create the topics of tables that do not exist.

        Args:
            document: the document.
            if_exists: what happens to objects that exist: "error", "ignore" leaves them, "replace" replaces them.

        Returns:
            The keys of the objects that were written, such as `table/shop.orders`.

        Raises:
            CatalogError: if it is not such a document, a newer version wrote it, or, by default, an object exists or is
                created by another program meanwhile. Then nothing is imported; topics that were created stay.
        """
        return self._transfer.import_objects(document, if_exists)

    def query(
        self,
        sql: str,
        args: Mapping[str, Any] | None = None,
        *,
        limit: int | None = None,
        timeout: float | None = 60.0,
        after: Offsets | str | None = None,
        max_scan_bytes: int = 4 * 1024**3,
        engine: "Engine" = "duckdb",
        spark_session: Any = None,
    ) -> "QueryResult":
        """Return the present rows of a query in Spark's SQL, computed when they are asked for: by DuckDB in this process.

        It reads tables that are topics, of those with a primary key the current rows, and system tables such as
        `system.tables`. Needs the extra `sql`. See docs/sql-queries.md.

        Args:
            sql: one SELECT, VALUES or WITH.
            args: values of its parameters, such as `:least`, by name.
            limit: most rows of the result; others are left out.
            timeout: seconds that it may work; None for any time. The time between two reads of rows does not count.
            after: a completion token that a writer has returned, or its text: rows up to it are seen.
            max_scan_bytes: bytes of records that it may read.
            engine: what computes it: "duckdb", or "spark" for scans and results beyond the memory of this process.
            spark_session: the session of Spark; `create_spark_session` makes one. By default, the Spark of this process,
                which is started as local[*] if there is none.

        Raises:
            SQLSyntaxError: if it cannot be read; the message has line and column.
            SQLAnalysisError: if names or types do not fit.
            SQLNotSupportedError: if it is not a query, or has what queries do not have.
            TableNotFoundError: if it names a table that does not exist.
            ConfigurationError: if DuckDB is not installed, or Spark cannot read a table.

        Example:
            ```python
            for row in catalog.query("SELECT customer, count(*) AS n FROM shop.orders GROUP BY customer"):
                print(row)
            ```
        """
        from streamrt.tables.catalogue.query_engine import load_query_engine

        self._state.require_open()
        return load_query_engine().query(
            self,
            sql,
            args,
            limit=limit,
            timeout=timeout,
            after=after,
            max_scan_bytes=max_scan_bytes,
            engine=engine,
            spark_session=spark_session,
        )

    def view(self, name: str) -> NoReturn:
        """Refuse to return a view.

        Args:
            name: its name.

        Raises:
            InvalidOperationError: always.
        """
        raise InvalidOperationError(
            f"view({name!r}) is not there yet, because a catalogue has tables alone: let an application write the result to "
            "a table by sdf.to_table()"
        )
