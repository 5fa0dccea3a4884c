"""Queries of `MySQLCdcSource` to MySQL and MariaDB: settings, tables, and positions of the binary log."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from streamrt.connectors.mysql.mysql_session import Connections, MySQLError, identifier
from streamrt.connectors.mysql.mysql_types import ORDERED, SUPPORTED, Decimals, from_state, to_json, to_state
from streamrt.errors import SourceError

__all__ = ["MySQLCatalog", "Table", "TableColumn"]

_NEEDED = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
# Forms of the log that its client cannot read; servers that do not know them do not have them.
_REFUSED = {
    "binlog_row_value_options": "",
    "binlog_transaction_compression": "OFF",
    "log_bin_compress": "OFF",
    "encrypt_binlog": None,
}
_PARSE_ERROR = 1064
_MARK = "\0"
"""Place of an argument; no name contains it, as opposed to the `%s` of the client."""


class TableColumn(NamedTuple):
    """A column.

    Attributes:
        name: its name.
        type: its type, without its length.
        members: members of a SET.
    """

    name: str
    type: str
    members: tuple[str, ...]


class Table(NamedTuple):
    """A table.

    Attributes:
        name: its name.
        columns: its columns, in their order.
        key: names of the columns of its primary key, in the order of the index.
    """

    name: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]

    @property
    def resumable(self) -> bool:
        """Whether parts of the table can be read by its key."""
        types = {column.name: column.type for column in self.columns}
        return bool(self.key) and all(types[name] in ORDERED for name in self.key)


class MySQLCatalog:
    """Settings, tables and positions of a server.

    Args:
        connections: the connections of the source.
        connection: the connection to use.
        database: name of the database.
        described: the source, as the subject of errors.
    """

    def __init__(self, connections: Connections, connection: Any, database: str, described: str) -> None:
        self._connections = connections
        self._connection = connection
        self._database = database
        self._described = described

    def check(self) -> str:
        """Check the settings of the server, and return its identity.

        Raises:
            SourceError: if it does not log what is needed.
        """
        names = (*_NEEDED, *_REFUSED, "server_uuid", "server_uid", "server_id")
        marks = ", ".join(["%s"] * len(names))
        found = self._run_query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", names)
        values = {name.lower(): str(value) for name, value in found}
        for name, wanted in {**_NEEDED, **_REFUSED}.items():
            given = values.get(name, "" if name in _NEEDED else wanted)
            if wanted is not None and given != wanted:
                raise SourceError(
                    f"{self._described} needs a server with {name}={wanted or 'nothing'}, and it has "
                    f"{name}={given or 'nothing'}: change the setting"
                )
        return values.get("server_uuid") or values.get("server_uid") or values["server_id"]

    def tables(self, names: Sequence[str]) -> list[Table]:
        """Return tables.

        Args:
            names: their names; none means all tables of the database.

        Raises:
            SourceError: if one is missing or cannot be followed.
        """
        found = self._run_query(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND table_type = 'BASE TABLE' "
            "ORDER BY table_name",
            (self._database,),
        )
        existing = [str(name) for (name,) in found]
        for name in names:
            if name not in existing:
                raise SourceError(f"{self._described} found no table {self._database}.{name}")
        return [self._read_table(name) for name in existing if not names or name in names]

    def end(self) -> tuple[str, int]:
        """Return the file and the position at the end of the binary log."""
        try:
            found = self._run_query("SHOW MASTER STATUS")
        except MySQLError as error:
            # MySQL 8.4 knows another statement.
            if error.code != _PARSE_ERROR:
                raise
            found = self._run_query("SHOW BINARY LOG STATUS")
        if not found:
            raise SourceError(f"{self._described} found no binary log on the server")
        return str(found[0][0]), int(found[0][1])

    def has(self, file: str, position: int) -> bool:
        """Return whether the server still has a position of its log.

        Args:
            file: the file.
            position: the position in it.
        """
        files = {str(row[0]): int(row[1]) for row in self._run_query("SHOW BINARY LOGS")}
        return position <= files.get(file, -1)

    def rows(
        self, table: Table, after: Sequence[Any] | None, chunk: int, decimals: Decimals
    ) -> Iterator[tuple[dict[str, Any], list[Any] | None]]:
        """Yield the rows of a table, each with its key in the form of the state.

        Args:
            table: the table.
            after: the key after which it begins.
            chunk: number of rows of a query, if the table can be read in parts.
            decimals: how decimals are written.
        """
        listed = ", ".join(_select_column(column) for column in table.columns)
        select = f"SELECT {listed} FROM {identifier(self._database)}.{identifier(table.name)}"  # noqa: S608
        if not table.resumable:
            for cells in self._connections.rows(self._connection, select):
                yield self._make_row(table, cells, decimals), None
            return
        places = {column.name: place for place, column in enumerate(table.columns)}
        order = ", ".join(map(identifier, table.key))
        while True:
            if after is None:
                found = self._run_query(f"{select} ORDER BY {order} LIMIT {chunk:d}")
            else:
                condition, arguments = _after_condition(table.key, after)
                statement = f"{select} WHERE {condition} ORDER BY {order} LIMIT {chunk:d}"
                found = self._run_query(statement.replace("%", "%%").replace(_MARK, "%s"), arguments)
            for cells in found:
                after = [to_state(cells[places[name]]) for name in table.key]
                yield self._make_row(table, cells, decimals), after
            if len(found) < chunk:
                return

    def lock(self, tables: Sequence[Table]) -> None:
        """Wait until no transaction writes to tables, and keep others from it.

        Args:
            tables: the tables.
        """
        self._run_query("SET SESSION lock_wait_timeout = 5")
        locks = ", ".join(f"{identifier(self._database)}.{identifier(table.name)} READ" for table in tables)
        self._run_query(f"LOCK TABLES {locks}")

    def _read_table(self, name: str) -> Table:
        found = self._run_query(
            "SELECT column_name, data_type, column_type, extra FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (self._database, name),
        )
        columns = []
        for column, kind, definition, _ in found:
            kind = str(kind).lower()
            if kind not in SUPPORTED:
                raise SourceError(
                    f"{self._described} cannot follow {self._database}.{name}: the client of the binary log cannot read "
                    f"the type {kind} of column {str(column)!r}"
                )
            columns.append(TableColumn(str(column), kind, _read_members(str(definition)) if kind == "set" else ()))
        key = self._run_query(
            "SELECT column_name FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s "
            "AND index_name = 'PRIMARY' ORDER BY seq_in_index",
            (self._database, name),
        )
        return Table(name, tuple(columns), tuple(str(column) for (column,) in key))

    def _make_row(self, table: Table, cells: Sequence[Any], decimals: Decimals) -> dict[str, Any]:
        return {
            column.name: to_json(column.type, cell, decimals, members=column.members)
            for column, cell in zip(table.columns, cells, strict=True)
        }

    def _run_query(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connections.query(self._connection, statement, arguments)


def _select_column(column: TableColumn) -> str:
    # The text form of a FLOAT has six digits only.
    name = identifier(column.name)
    return f"CAST({name} AS DOUBLE)" if column.type == "float" else name


def _after_condition(key: Sequence[str], after: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Return the condition of rows after a key, in a form for which servers use the index."""
    names = [identifier(name) for name in key]
    values = [from_state(value) for value in after]
    choices = []
    arguments: list[Any] = []
    for place, name in enumerate(names):
        equal = [f"{earlier} = {_MARK}" for earlier in names[:place]]
        choices.append("(" + " AND ".join([*equal, f"{name} > {_MARK}"]) + ")")
        arguments += values[: place + 1]
    return f"{names[0]} >= {_MARK} AND ({' OR '.join(choices)})", (values[0], *arguments)


def _read_members(definition: str) -> tuple[str, ...]:
    """Return the members of a type such as `set('a','it''s')`."""
    inner = definition[definition.index("(") + 1 : definition.rindex(")")]
    return tuple(member.replace("''", "'") for member in inner.strip("'").split("','"))
