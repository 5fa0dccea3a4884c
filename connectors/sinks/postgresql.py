"""A sink for PostgreSQL."""

import datetime
import decimal
import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.sql import PrimaryKeyColumns, SQLSink, TableName
from streamrt.connectors.sinks.sql_rows import Place, TableRows, loss_check, rejection
from streamrt.errors import SinkError, argument_error
from streamrt.secret import Secret

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgreSQLSink"]

# CONTEXT of an error in COPY; the rest of the text quotes the value.
_COPY_CONTEXT = re.compile(r"COPY [^,]*, line (\d+)(?:, column ([^:]+))?")
# Classes of SQLSTATE that an operator or time may cure: connection, rollback, resources, intervention, system, internal.
_PASSING_CLASSES = ("08", "40", "53", "55", "57", "58", "XX")
_LARGEST_BIGINT = 1 << 63
# Most values need no conversion, and the look is cheaper than the call.
_PLAIN = frozenset({str, int, float, bool, type(None), bytes, datetime.datetime})


class PostgreSQLSink(SQLSink):
    """Writes dicts to tables of a PostgreSQL database, each value once.

    The fields of a value are columns; tables and columns are created when they first occur. Rows are written by COPY,
    those that may exist already through a temporary table. Needs the extra `postgres`.

    Args:
        host: host of the server, or the directory of its socket.
        port: port of the server.
        dbname: name of the database.
        user: name of the user.
        password: the password, or a function that returns it. The process that opens a connection calls the function.
        table_name: name of the table, or a function that returns it for an item.
        schema_name: schema of the tables; it must exist.
        schema_auto_update: whether missing tables and columns are created.
        connection_timeout_seconds: time limit for opening a connection, in seconds.
        statement_timeout_seconds: time limit of the server for one statement, in seconds.
        primary_key_columns: columns of the primary key of tables that the sink creates, or a function that returns them
            for an item. Use `__key` for the key of the record.
        upsert_on_primary_key: whether a row replaces the columns of the one with its primary key.
        on_conflict_do_nothing: whether a row is dropped if its primary key exists.
        include_metadata: whether the columns `__key` (the key of the record as text) and `timestamp` (its event time)
            are added.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        position_table: name of the table, in the same schema, that holds the positions of the group; None to write
            values at least once, without positions.
        name: name of the sink, unique in the application; by default schema and table. Required if `table_name` is a
            function.
        retries: how requests are repeated while the server is away.
        **kwargs: further parameters of the connection, such as `sslmode`.

    Raises:
        ConfigurationError: if an argument cannot be used, or psycopg is not installed.

    Example:
        ```python
        sink = PostgreSQLSink(
            host="localhost",
            port=5432,
            dbname="shop",
            user="streamrt",
            password=lambda: os.environ["PGPASSWORD"],
            table_name="orders",
            primary_key_columns="order_id",
            upsert_on_primary_key=True,
        )
        sdf.sink(sink)
        ```
    """

    def __init__(
        self,
        host: str,
        port: int,
        dbname: str,
        user: str,
        password: CredentialInput,
        table_name: TableName,
        schema_name: str = "public",
        schema_auto_update: bool = True,
        connection_timeout_seconds: int = 30,
        statement_timeout_seconds: int = 30,
        primary_key_columns: PrimaryKeyColumns = (),
        upsert_on_primary_key: bool = False,
        on_conflict_do_nothing: bool = False,
        include_metadata: bool = True,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        position_table: str | None = "streamrt_positions",
        name: str | None = None,
        retries: Retries | None = None,
        **kwargs: Any,
    ) -> None:
        require_library("PostgreSQLSink", "psycopg", "postgres")
        super().__init__(
            table_name,
            schema_auto_update=schema_auto_update,
            primary_key_columns=primary_key_columns,
            upsert_on_primary_key=upsert_on_primary_key,
            on_conflict_do_nothing=on_conflict_do_nothing,
            include_metadata=include_metadata,
            position_table=position_table,
            name=name,
            retries=retries,
            on_client_connect_success=on_client_connect_success,
            on_client_connect_failure=on_client_connect_failure,
        )
        self._check_identifier("schema_name", schema_name)
        for option, seconds in (
            ("connection_timeout_seconds", connection_timeout_seconds),
            ("statement_timeout_seconds", statement_timeout_seconds),
        ):
            if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 1:
                raise argument_error(
                    f"PostgreSQLSink({option}=...) must be 1 second or more, got {seconds!r}",
                    of_type=isinstance(seconds, int) and not isinstance(seconds, bool),
                )
        self._settings: dict[str, Any] = {"host": host, "port": port, "dbname": dbname, "user": user}
        self._schema = schema_name
        self._connection_timeout = connection_timeout_seconds
        self._statement_timeout = statement_timeout_seconds
        self._password = Credential(password, "PostgreSQLSink(password=...)")
        # Other parameters may hold secrets, too, such as `sslpassword`.
        self._hidden = Secret(json.dumps(kwargs))

    def __repr__(self) -> str:
        return f"PostgreSQLSink({', '.join(map(repr, self._settings.values()))}, ***, {self.destination!r})"

    @property
    def destination(self) -> str:  # noqa: D102
        return f"{self._schema}.{super().destination}"

    def setup(self) -> None:
        """Connect, and create the table of positions.

        Raises:
            SinkError: if there is no connection, the schema does not exist, or the table cannot be created.
        """
        import psycopg

        try:
            self._reconnect()
        except psycopg.Error as error:
            raise SinkError(f"{self._server} cannot be reached: {self._reason(error)}") from error
        if not self._query("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = ?", self._schema):
            raise SinkError(f"{self._server} has no schema {self._schema!r}: create it, or choose another schema_name")
        super().setup()

    @property
    def _server(self) -> str:
        where = self._settings
        return f"the PostgreSQL database {where['dbname']!r} at {where['host']}:{where['port']}"

    def _connect(self) -> "psycopg.Connection[Any]":
        import psycopg

        connection = psycopg.connect(
            **self._settings,
            password=self._password.reveal(),
            connect_timeout=self._connection_timeout,
            **json.loads(self._hidden.reveal()),
        )
        connection.execute(f"SET statement_timeout = {self._statement_timeout * 1_000}")
        connection.execute("SET TimeZone = 'UTC'")
        connection.commit()
        return connection

    def _passes(self, error: BaseException) -> bool:
        import psycopg

        if not isinstance(error, psycopg.Error):
            return False
        state = error.sqlstate
        if state is None:
            # The connection was refused or broke.
            return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return state.startswith(_PASSING_CLASSES)

    def _reason(self, error: BaseException) -> str:
        import psycopg

        if isinstance(error, psycopg.Error) and error.sqlstate is not None:
            # The server's text may quote values.
            return f"{type(error).__name__} (SQLSTATE {error.sqlstate})"
        text = (str(error).strip().splitlines() or [""])[0]
        return f"{type(error).__name__}: {self._password.masked(text)}"

    def _type_of(self, value: Any) -> str | None:
        if isinstance(value, bool):
            return "BOOLEAN"
        if isinstance(value, int):
            return "BIGINT" if -_LARGEST_BIGINT <= value < _LARGEST_BIGINT else "NUMERIC"
        types: tuple[tuple[Any, str], ...] = (
            (float, "DOUBLE PRECISION"),
            (str, "TEXT"),
            ((bytes, bytearray, memoryview), "BYTEA"),
            # A datetime is a date, too.
            (datetime.datetime, "TIMESTAMP WITH TIME ZONE"),
            (datetime.date, "DATE"),
            (datetime.time, "TIME"),
            (datetime.timedelta, "INTERVAL"),
            (decimal.Decimal, "NUMERIC"),
            (uuid.UUID, "UUID"),
            ((dict, list, tuple), "JSONB"),
        )
        return next((kind for classes, kind in types if isinstance(value, classes)), None)

    def _timestamp(self, milliseconds: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(milliseconds=milliseconds)

    def _qualified(self, table: str) -> str:
        return f"{self._quoted(self._schema)}.{self._quoted(table)}"

    def _statement(self, text: str) -> str:
        # The name of a schema may contain percent signs.
        return text.replace("%", "%%").replace("?", "%s")

    def _find_columns(self, table: str) -> dict[str, str]:
        return {
            row[0]: row[1]
            for row in self._query(
                "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a"
                " JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
                " WHERE n.nspname = ? AND c.relname = ? AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
                self._schema,
                table,
            )
        }

    def _find_primary_key(self, table: str) -> tuple[str, ...]:
        found = self._query(
            "SELECT a.attname FROM pg_catalog.pg_index i"
            " JOIN pg_catalog.pg_class c ON c.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)"
            " WHERE i.indisprimary AND n.nspname = ? AND c.relname = ?",
            self._schema,
            table,
        )
        return tuple(row[0] for row in found)

    def _insert(self, rows: TableRows, columns: Sequence[str]) -> None:
        with self._connection.cursor() as cursor:
            if self._upsert or self._ignore:
                for part, own in rows.by_columns(columns):
                    self._insert_staged(cursor, part, own)
                return
            defaults = self._find_defaults(cursor, rows.table)
            for part, own in _runs(rows, columns, defaults.intersection(columns)):
                self._copy(cursor, self._qualified(rows.table), part, own)

    def _insert_staged(self, cursor: Any, rows: TableRows, columns: Sequence[str]) -> None:
        """Insert rows that may exist already, over a temporary table, since COPY knows no conflicts."""
        target, names = self._qualified(rows.table), ", ".join(map(self._quoted, columns))
        cursor.execute("DROP TABLE IF EXISTS pg_temp.streamrt_rows")
        cursor.execute(
            f"CREATE TEMPORARY TABLE streamrt_rows ON COMMIT DROP AS SELECT {names} FROM {target} WITH NO DATA"  # noqa: S608
        )
        self._copy(cursor, "pg_temp.streamrt_rows", rows, columns)
        others = (self._quoted(column) for column in columns if column not in rows.primary_key)
        updates = ", ".join(f"{column} = excluded.{column}" for column in others)
        action = f"UPDATE SET {updates}" if self._upsert and updates else "NOTHING"
        keys = ", ".join(map(self._quoted, rows.primary_key))
        # In the order of keys, so that two processes cannot wait for each other.
        insert = (
            f"INSERT INTO {target} ({names}) SELECT {names} FROM pg_temp.streamrt_rows ORDER BY {keys}"  # noqa: S608
            f" ON CONFLICT ({keys}) DO {action}"
        )
        self._checked(lambda: cursor.execute(insert), rows)

    def _copy(self, cursor: Any, target: str, rows: TableRows, columns: Sequence[str]) -> None:
        self._refuse_losses(rows, columns)
        arrays = frozenset(column for column in columns if rows.kinds.get(column, "").endswith("[]"))

        def write() -> None:
            if not columns:
                cursor.execute(f"INSERT INTO {target} SELECT FROM generate_series(1, {len(rows.rows)})")
                return
            with cursor.copy(f"COPY {target} ({', '.join(map(self._quoted, columns))}) FROM STDIN") as copy:
                for row in rows.rows:
                    copy.write_row(
                        [
                            value
                            if type(value := row.get(column)) in _PLAIN
                            else self._converted(value, column in arrays)
                            for column in columns
                        ]
                    )

        self._checked(write, rows)

    def _refuse_losses(self, rows: TableRows, columns: Sequence[str]) -> None:
        """Refuse values of which a column would keep only a part, without a word from PostgreSQL."""
        kinds = {column: rows.kinds.get(column, "") for column in columns}
        checks = {
            column: loss_check(kind) for column, kind in kinds.items() if kind == "date" or kind.startswith("numeric(")
        }
        for column, check in checks.items():
            for row, place in zip(rows.rows, rows.places, strict=True):
                reason = check(row.get(column)) if check is not None else None
                if reason is not None:
                    raise rejection(
                        f"column {column!r} of table {rows.table!r} rejects the value of {place}: {reason}", place
                    )

    def _find_defaults(self, cursor: Any, table: str) -> frozenset[str]:
        cursor.execute(
            "SELECT a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid"
            " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND (a.atthasdef OR a.attidentity <> '')",
            (self._schema, table),
        )
        return frozenset(row[0] for row in cursor.fetchall())

    def _checked(self, request: Callable[[], Any], rows: TableRows) -> None:
        import psycopg

        try:
            request()
        except psycopg.Error as error:
            if self._passes(error):
                raise
            at = _COPY_CONTEXT.search(error.diag.context or "")
            line = int(at[1]) if at is not None else 0
            place: Place | str = (
                rows.places[line - 1] if 0 < line <= len(rows.places) else f"a row from {rows.places[0]} on"
            )
            column = error.diag.column_name or (at[2] if at is not None else None)
            where = f"column {column!r} of table {rows.table!r}" if column else f"table {rows.table!r}"
            raise rejection(f"{where} rejects the value of {place}: {self._reason(error)}", place) from None

    def _converted(self, value: Any, array: bool = False) -> Any:
        if isinstance(value, dict | list | tuple) and not array:
            from psycopg.types.json import Jsonb

            return Jsonb(list(value) if isinstance(value, tuple) else value)
        return value


def _runs(rows: TableRows, columns: Sequence[str], defaults: frozenset[str]) -> Iterable[tuple[TableRows, list[str]]]:
    """Divide rows into runs that lack the same columns with a default, which COPY would set to null."""
    if not defaults:
        yield rows, list(columns)
        return
    pairs = zip(rows.rows, rows.places, strict=True)
    for lacking, run in itertools.groupby(pairs, key=lambda pair: defaults.difference(pair[0])):
        part = rows.empty()
        for row, place in run:
            part.append(row, place)
        yield part, [column for column in columns if column not in lacking]
