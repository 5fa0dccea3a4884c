"""Parts of PostgreSQL's catalog that `PostgresCdcSource` reads and changes: tables, types, publications, slots."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from streamrt.connectors.postgresql.pgoutput import lsn_number
from streamrt.connectors.postgresql.postgres_session import Session, identifier, literal
from streamrt.connectors.postgresql.postgres_types import TypeInfo
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SourceError

__all__ = [
    "LONGEST_NAME",
    "PostgresCatalog",
    "Slot",
    "Table",
    "TableColumn",
    "TableName",
    "checked_name",
    "table_names",
]

logger = logging.getLogger("streamrt.connectors")

LONGEST_NAME = 63
"""Bytes of a name; PostgreSQL cuts off the rest."""

_OLDEST = 130_000
# These have elements, but another text form than arrays.
_VECTORS = ("int2vector", "oidvector")


class TableName(NamedTuple):
    """Name of a table, with its schema.

    Example:
        >>> str(TableName("public", "orders"))
        'public.orders'
    """

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def sql(self) -> str:
        """The name, quoted."""
        return f"{identifier(self.schema)}.{identifier(self.table)}"


class TableColumn(NamedTuple):
    """A column: its name, the number of its type, and the type in SQL."""

    name: str
    type: int
    sql_type: str


class Table(NamedTuple):
    """A table of a publication.

    Attributes:
        name: its name.
        columns: its published columns, in the order of the table.
        key: names of the columns of its primary key, or of its replica identity's index, in the order of the index.
        partitioned: whether its rows are in partitions.
        row_filter: condition of published rows, in SQL.
    """

    name: TableName
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    partitioned: bool
    row_filter: str | None


class Slot(NamedTuple):
    """A replication slot.

    Attributes:
        plugin: its output plug-in.
        database: its database.
        confirmed: position up to which changes were acknowledged.
        lost: whether the server has deleted parts of the log that it needs.
    """

    plugin: str | None
    database: str | None
    confirmed: int
    lost: bool


class PostgresCatalog:
    """The catalog of a database.

    Args:
        session: the connection.
        described: the source, as the subject of errors.

    Raises:
        SourceError: if the server is too old, or does not log what is needed.
    """

    def __init__(self, session: Session, described: str) -> None:
        self._session = session
        self._described = described
        self._version = int(self._query_one("SHOW server_version_num"))
        if self._version < _OLDEST:
            raise SourceError(f"{described} needs PostgreSQL 13 or newer, and this server is older")
        level = self._query_one("SHOW wal_level")
        if level != "logical":
            raise SourceError(
                f"{described} needs a server with wal_level=logical, and it has wal_level={level}: change the setting, "
                "and restart the server"
            )

    def ensure_publication(self, name: str, tables: Sequence[TableName], create: bool) -> None:
        """Create a publication of the tables, or add tables to it.

        Args:
            name: name of the publication.
            tables: the tables; none means that the publication exists, and is used as it is.
            create: whether it may be changed.

        Raises:
            SourceError: if it is missing and may not be created, or a table cannot be published.
            PostgresError: if the server refuses it.
        """
        exists = self._session.execute(f"SELECT 1 FROM pg_publication WHERE pubname = {literal(name)}")  # noqa: S608
        if not exists and not (create and tables):
            raise SourceError(f"{self._described} found no publication {name!r}: create it, or give tables")
        known = {table.name for table in self.tables(name)} if exists else set()
        missing = [table for table in tables if table not in known]
        if not missing:
            return
        if not create:
            raise SourceError(
                f"{self._described} cannot follow {', '.join(map(str, missing))}: the publication {name!r} does not "
                "contain it"
            )
        for table in missing:
            self._check_table(table)
        listed = ", ".join(table.sql for table in missing)
        if exists:
            self._session.execute(f"ALTER PUBLICATION {identifier(name)} ADD TABLE {listed}")
        else:
            self._session.execute(
                f"CREATE PUBLICATION {identifier(name)} FOR TABLE {listed} WITH (publish_via_partition_root = true)"
            )

    def tables(self, publication: str) -> list[Table]:
        """Return the tables of a publication.

        Args:
            publication: its name.
        """
        filters = "p.rowfilter, p.attnames" if self._version >= 150_000 else "NULL, NULL::name[]"
        found = self._session.execute(
            f"SELECT c.oid, n.nspname, c.relname, c.relkind, {filters.replace('p.attnames', 'p.attnames::text[]')} "  # noqa: S608
            "FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname "
            "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename "
            f"WHERE p.pubname = {literal(publication)} ORDER BY n.nspname, c.relname"
        )
        tables = []
        for oid, schema, name, kind, row_filter, names in found:
            table = TableName(str(schema), str(name))
            columns = self._read_columns(table, str(oid), None if names is None else literal(names))
            tables.append(Table(table, columns, self._read_key(str(oid)), kind == "p", row_filter))
        return tables

    def key(self, relation: int) -> tuple[str, ...]:
        """Return the names of a table's key columns; none if the table has no key, or is gone.

        Args:
            relation: number of the table.
        """
        return self._read_key(str(relation))

    def type(self, number: int) -> TypeInfo:
        """Return what is known of a type.

        Args:
            number: its number.
        """
        found = self._session.execute(
            "SELECT n.nspname, t.typname, t.typtype, t.typbasetype, t.typelem, t.typcategory, e.typdelim "  # noqa: S608
            "FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_type e ON e.oid = t.typelem "
            f"WHERE t.oid = {number:d}"
        )
        if not found:
            # It was dropped after the change that is being read.
            return TypeInfo("unknown")
        schema, name, kind, base, element, category, delimiter = found[0]
        shown = str(name) if schema == "pg_catalog" else f"{schema}.{name}"
        if kind == "d":
            return TypeInfo(shown, base=self.type(int(str(base))))
        if category == "A" and element != "0" and name not in _VECTORS:
            return TypeInfo(shown, self.type(int(str(element))), delimiter or ",")
        return TypeInfo(shown)

    def slot(self, name: str) -> Slot | None:
        """Return a replication slot, or None if there is none.

        Args:
            name: its name.
        """
        found = self._session.execute(
            "SELECT plugin, database, confirmed_flush_lsn, wal_status FROM pg_replication_slots "  # noqa: S608
            f"WHERE slot_name = {literal(name)}"
        )
        if not found:
            return None
        plugin, database, confirmed, status = found[0]
        return Slot(plugin, database, lsn_number(confirmed or "0/0"), status == "lost")

    def drop_slot(self, name: str) -> None:
        """Drop a replication slot.

        Args:
            name: its name.
        """
        self._session.execute(f"SELECT pg_drop_replication_slot({literal(name)})")

    def _check_table(self, table: TableName) -> None:
        found = self._session.execute(
            "SELECT c.relkind, c.relpersistence, c.relreplident, EXISTS (SELECT 1 FROM pg_index i WHERE "  # noqa: S608
            "i.indrelid = c.oid AND i.indisprimary) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = {literal(table.schema)} AND c.relname = {literal(table.table)}"
        )
        if not found:
            raise SourceError(f"{self._described} found no table {table}")
        kind, persistence, identity, has_key = found[0]
        if kind not in ("r", "p") or persistence != "p":
            raise SourceError(
                f"{self._described} cannot follow {table}: only tables that PostgreSQL logs can be published, not views, "
                "foreign, temporary or unlogged tables"
            )
        if identity == "n" or (identity == "d" and has_key == "f"):
            # PostgreSQL would refuse all updates and deletes of the table from then on.
            raise SourceError(
                f"{self._described} cannot follow {table}: it has no replica identity; give it a primary key, or run "
                f"ALTER TABLE {table.sql} REPLICA IDENTITY FULL"
            )

    def _read_columns(self, table: TableName, relation: str, names: str | None) -> tuple[TableColumn, ...]:
        # Newer versions can publish generated columns, and list those that they publish.
        published = self._version >= 180_000 and names is not None
        listed = "true" if names is None else f"attname::text = ANY({names}::text[])"
        found = self._session.execute(
            f"SELECT attname, atttypid, format_type(atttypid, atttypmod), attgenerated <> '', {listed} FROM pg_attribute "  # noqa: S608
            f"WHERE attrelid = {int(relation)} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        left_out = [
            str(name)
            for name, *_, generated, is_listed in found
            if str(generated) == "t" and not (published and str(is_listed) == "t")
        ]
        if left_out:
            logger.warning(
                "%s: PostgreSQL does not publish generated columns, so records lack %s of table %s",
                self._described,
                ", ".join(map(repr, left_out)),
                table,
            )
        return tuple(
            TableColumn(str(name), int(str(kind)), str(sql))
            for name, kind, sql, _, is_listed in found
            if str(is_listed) == "t" and str(name) not in left_out
        )

    def _read_key(self, relation: str) -> tuple[str, ...]:
        found = self._session.execute(
            "SELECT a.attname FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid "  # noqa: S608
            "CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(number, place) "
            "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number "
            f"WHERE c.oid = {int(relation)} AND k.place <= i.indnkeyatts "
            "AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END ORDER BY k.place"
        )
        return tuple(str(name) for (name,) in found)

    def _query_one(self, statement: str) -> str:
        return str(self._session.execute(statement)[0][0])


def table_names(tables: Any) -> list[TableName]:
    """Return the names of tables that an argument has.

    Args:
        tables: names, as `table`, `schema.table` or a pair; or None.

    Raises:
        ConfigurationError: if it is something else.

    Example:
        >>> [str(name) for name in table_names(["orders", "shop.items", ("odd.schema", "odd.name")])]
        ['public.orders', 'shop.items', 'odd.schema.odd.name']
    """
    if tables is None:
        return []
    if isinstance(tables, str) or not isinstance(tables, Sequence):
        raise ArgumentTypeError(f"PostgresCdcSource(tables=...) must be a list of names, got {type(tables).__name__}")
    names = []
    for table in tables:
        if isinstance(table, str):
            schema, dot, short = table.partition(".")
            parts = [schema, short] if dot else ["public", table]
        elif isinstance(table, Sequence) and len(table) == 2:
            parts = list(table)
        else:
            raise ArgumentTypeError(f"PostgresCdcSource(tables=...) must contain names or pairs, got {table!r}")
        names.append(TableName(*(checked_name("tables", part) for part in parts)))
    return list(dict.fromkeys(names))


def checked_name(argument: str, name: Any) -> str:
    """Return a name if PostgreSQL can store it.

    Args:
        argument: name of the argument.
        name: the name.

    Raises:
        ConfigurationError: if it cannot.
    """
    if not isinstance(name, str) or not name or "\0" in name or len(name.encode()) > LONGEST_NAME:
        raise ArgumentValueError(f"PostgresCdcSource({argument}=...) must be names of 1 to 63 bytes, got {name!r}")
    return name
