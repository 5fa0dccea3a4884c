"""A sink for PostgreSQL."""

import datetime
import decimal
import functools
import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamrt.connectors.argument_checks import checked_type
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sql.sql_rows import TableRows, UnplacedRejectionError, rejection, unusable
from streamrt.connectors.sql.sql_sink import PrimaryKeyColumns, SQLSink, TableName
from streamrt.connectors.sql.sql_staging import STAGED, Staging, staged_row
from streamrt.connectors.sql.sql_statement import Parameters, Statement
from streamrt.connectors.sql.sql_values import Dialect, Fit, fit_of
from streamrt.connectors.tls import LIBPQ_NAMES, TLS, check_tls, libpq_settings
from streamrt.errors import SinkError
from streamrt.secret import Secret

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgreSQLSink"]

# CONTEXT of an error in COPY; the rest of the text quotes the value.
_COPY_CONTEXT = re.compile(r"COPY [^,]*, line (\d+)(?:, column ([^:]+))?")
# Classes of SQLSTATE that an operator or time may cure: connection, rollback, resources, intervention, system, internal.
_PASSING_CLASSES = ("08", "40", "53", "55", "57", "58", "XX")
_LARGEST_BIGINT = 1 << 63
# As types of a cast, these words mean one character and one bit.
_UNLIMITED = re.compile(r"^(?:character|bit)(?=\[|$)")
_NO_FORM = "it has no form in the database: convert it with apply() before sink()"
# Classes and codes of SQLSTATE that are about rows: data, constraints, checks of views, limits, errors of triggers, columns
# that are computed.
_ROW_CLASSES = ("21", "22", "23", "27", "428C9", "42804", "44", "54", "P0")
# About the columns of a table: a name of the system, names, number.
_COLUMN_STATES = frozenset({"42701", "42602", "42622", "54011"})
_SYSTEM_COLUMNS = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})
_DIALECT = Dialect(
    frozenset({
        "bigint", "boolean", "bytea", "date", "double precision", "interval", "jsonb", "numeric", "text",
        "time without time zone", "timestamp with time zone", "uuid",
    }),
    nested_as_json=True,
)  # fmt: skip


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
        table_name: name of the table, or a function that returns it for an item. None with `statement`.
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
        statement: a statement that is run for each item, instead of writing a row: INSERT, UPDATE, DELETE, MERGE or WITH,
            with parameters such as `:sku`. Needs `name`, and goes without options of tables.
        parameters: returns the parameters for an item by name; by default, they are the fields of its value.
        position_table: name of the table, in the same schema, that holds the positions of the group; None to write
            values at least once, without positions.
        name: name of the sink, unique in the application; by default schema and table. Required if `table_name` is a
            function.
        retries: how requests are repeated while the server is away.
        tls: True for TLS with a certificate that the system trusts, the path of a file of trusted certificates, or False
            for none; by default, libpq decides.
        **kwargs: further parameters of the connection, such as `sslcert` for a certificate of the client.

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

    # 1,600 in a table; four more columns are in the temporary one.
    _most_columns = 1_596
    _reserved_columns = _SYSTEM_COLUMNS

    def __init__(
        self,
        host: str,
        port: int,
        dbname: str,
        user: str,
        password: CredentialInput,
        table_name: TableName | None = None,
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
        statement: str | None = None,
        parameters: Parameters | None = None,
        position_table: str | None = "streamrt_positions",
        name: str | None = None,
        retries: Retries | None = None,
        tls: TLS = None,
        **kwargs: Any,
    ) -> None:
        require_library("PostgreSQLSink", "psycopg", "postgres")
        super().__init__(
            table_name,
            statement=statement,
            parameters=parameters,
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
            checked_type("PostgreSQLSink", option, seconds, int, "1 second or more", lambda seconds: seconds >= 1)
        self._settings: dict[str, Any] = {"host": host, "port": port, "dbname": dbname, "user": user}
        self._schema = schema_name
        self._connection_timeout = connection_timeout_seconds
        self._statement_timeout = statement_timeout_seconds
        self._password = Credential(password, "PostgreSQLSink(password=...)")
        # Other parameters may also hold secrets, such as `sslpassword`.
        check_tls("PostgreSQLSink", tls, kwargs, LIBPQ_NAMES)
        self._hidden = Secret(json.dumps({**kwargs, **libpq_settings(tls)}))

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
            raise SinkError(f"{self._server} cannot be reached: {self._error_reason(error)}") from error
        if not self._run_query("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = ?", self._schema):
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

    def _may_pass(self, error: BaseException) -> bool:
        import psycopg

        if not isinstance(error, psycopg.Error):
            return False
        state = error.sqlstate
        if state is None:
            # The connection was refused or broke.
            return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return state.startswith(_PASSING_CLASSES)

    def _error_reason(self, error: BaseException) -> str:
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
            # A datetime is also a date.
            (datetime.datetime, "TIMESTAMP WITH TIME ZONE"),
            (datetime.date, "DATE"),
            (datetime.time, "TIME"),
            (datetime.timedelta, "INTERVAL"),
            (decimal.Decimal, "NUMERIC"),
            (uuid.UUID, "UUID"),
            ((dict, list, tuple), "JSONB"),
        )
        return next((kind for classes, kind in types if isinstance(value, classes)), None)

    def _make_timestamp(self, milliseconds: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(milliseconds=milliseconds)

    def _qualify_name(self, table: str) -> str:
        return f"{self._quote_name(self._schema)}.{self._quote_name(table)}"

    def _adapt_statement(self, text: str) -> str:
        # The name of a schema may contain percent signs.
        return text.replace("%", "%%").replace("?", "%s")

    def _find_columns(self, table: str) -> dict[str, str]:
        return {
            row[0]: row[1]
            for row in self._run_query(
                "SELECT a.attname, pg_catalog.format_type(CASE y.typbasetype WHEN 0 THEN a.atttypid ELSE y.typbasetype END,"
                " CASE y.typbasetype WHEN 0 THEN a.atttypmod ELSE y.typtypmod END)"
                " FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid"
                " JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
                " WHERE n.nspname = ? AND c.relname = ? AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
                self._schema,
                table,
            )
        }

    def _find_primary_key(self, table: str) -> tuple[str, ...]:
        found = self._run_query(
            "SELECT a.attname FROM pg_catalog.pg_index i"
            " JOIN pg_catalog.pg_class c ON c.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)"
            " WHERE i.indisprimary AND n.nspname = ? AND c.relname = ?",
            self._schema,
            table,
        )
        return tuple(row[0] for row in found)

    def _insert_rows(self, rows: TableRows, columns: Sequence[str]) -> None:
        with self._connection.cursor() as cursor:
            defaults = self._find_defaults(cursor, rows.table)
            if self._upsert or self._ignore:
                self._insert_staged(cursor, rows, columns, defaults)
                return
            for part, own in _group_runs(rows, columns, defaults.intersection(columns)):
                self._copy_rows(cursor, self._qualify_name(rows.table), part, own, part.convert_columns(own, _find_fit))

    def _insert_staged(self, cursor: Any, rows: TableRows, columns: Sequence[str], defaults: frozenset[str]) -> None:
        """Insert rows that may exist already, over a temporary table, since COPY knows no conflicts."""
        target, staged = self._qualify_name(rows.table), f"pg_temp.{STAGED}"
        staging = Staging(target, staged, rows, columns, defaults, self._quote_name)
        cursor.execute(f"DROP TABLE IF EXISTS {staged}")
        cursor.execute(staging.create(f"CREATE TEMPORARY TABLE {STAGED} ON COMMIT DROP"))
        converted = (
            staged_row(staging, row, number) for number, row in enumerate(rows.convert_columns(columns, _find_fit))
        )
        self._copy_rows(cursor, staged, rows, [*columns, *staging.extra], converted)
        turns = 1
        cursor.execute(staging.find_equal_keys)
        if cursor.fetchone() is not None:
            cursor.execute(staging.take_turns)
            cursor.execute(staging.count_turns)
            turns = 1 if self._ignore else cursor.fetchone()[0]
        keys = ", ".join(map(self._quote_name, rows.primary_key))
        if self._upsert and staging.sparse:
            cursor.execute(f"CREATE INDEX ON {staged} ({staging.turn}, {keys})")
        for turn in range(1, turns + 1):
            for lacking, part in staging.parts.items():
                names = staging.inserted(lacking)
                # In the order of keys, so that two processes cannot wait for each other.
                insert = (
                    f"INSERT INTO {target} AS t ({names}) SELECT {names} FROM {staged} s WHERE {staging.where(part, turn)}"  # noqa: S608
                    f" ORDER BY {keys} ON CONFLICT ({keys}) DO {self._conflict_action(staging, turn)}"
                )
                self._call_checked(functools.partial(cursor.execute, insert), rows)

    def _conflict_action(self, staging: Staging, turn: int) -> str:
        updates = staging.updates("excluded") if self._upsert else []
        if not updates:
            return "NOTHING"
        if not staging.sparse:
            return f"UPDATE SET {', '.join(f'{name} = {value}' for name, value in updates)}"
        names, values = (", ".join(part) for part in zip(*updates, strict=True))
        # Without a staged row, since a trigger has changed the key, columns with `has` stay as they are.
        staged = f"(SELECT 1) one LEFT JOIN pg_temp.{STAGED} s ON s.{staging.turn} = {turn}"
        return f"UPDATE SET ({names}) = (SELECT {values} FROM {staged} AND {staging.equal_keys('s', 'excluded')})"  # noqa: S608

    def _copy_rows(
        self, cursor: Any, target: str, rows: TableRows, columns: Sequence[str], converted: Iterable[Mapping[str, Any]]
    ) -> None:
        """Copy rows, in the form that their columns keep, into a table."""
        if not columns:
            insert = f"INSERT INTO {target} SELECT FROM generate_series(1, {len(rows.rows)})"
            self._call_checked(lambda: cursor.execute(insert), rows)
            return

        def write() -> None:
            row: Mapping[str, Any] = {}
            written = 0
            try:
                with cursor.copy(f"COPY {target} ({', '.join(map(self._quote_name, columns))}) FROM STDIN") as copy:
                    for row in converted:
                        copy.write_row([row.get(column) for column in columns])
                        written += 1
            except Exception as error:
                if not _is_about_form(error):
                    raise
                column = next((name for name in columns if self._has_no_form(row.get(name))), None)
                raise rejection(rows.table, column, rows.places[written], _NO_FORM) from None

        self._call_checked(write, rows)

    def _has_no_form(self, value: Any) -> bool:
        from psycopg.adapt import PyFormat, Transformer

        if value is None:
            return False
        try:
            Transformer(self._connection).get_dumper(value, PyFormat.TEXT).dump(value)
        except Exception as error:  # noqa: BLE001 - looked at by its caller in `_is_about_form`
            return _is_about_form(error)
        return False

    def _describe_statement(self, statement: Statement) -> dict[str, str]:
        with self._open_transaction() as cursor:
            cursor.execute(f"PREPARE streamrt AS {statement.numbered()}")
            cursor.execute(
                "SELECT parameter_types::text[] FROM pg_catalog.pg_prepared_statements WHERE name = 'streamrt'"
            )
            kinds = cursor.fetchone()[0]
            cursor.execute("DEALLOCATE streamrt")
        return dict(zip(statement.names, kinds, strict=True))

    def _execute_statement(self, statement: Statement, rows: TableRows) -> None:
        # Values have types of their own. The casts keep those that the server has found.
        text = statement.render(
            lambda name: f"CAST(%({name})s AS {_UNLIMITED.sub(_drop_limit, rows.kinds[name])})",
            lambda part: part.replace("%", "%%"),
        )
        converted = list(rows.convert_columns(statement.names, _find_fit))

        def run() -> None:
            try:
                cursor.executemany(text, converted)
            except Exception as error:
                if not _is_about_form(error):
                    raise
                for row, place in zip(converted, rows.places, strict=True):
                    name = next((name for name, value in row.items() if self._has_no_form(value)), None)
                    if name is not None:
                        raise rejection(rows.table, name, place, _NO_FORM) from None
                raise

        with self._connection.cursor() as cursor:
            self._call_checked(run, rows)

    def _find_defaults(self, cursor: Any, table: str) -> frozenset[str]:
        cursor.execute(
            "SELECT a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid"
            " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND (a.atthasdef OR a.attidentity <> '')",
            (self._schema, table),
        )
        return frozenset(row[0] for row in cursor.fetchall())

    def _call_checked(self, request: Callable[[], Any], rows: TableRows) -> None:
        import psycopg

        try:
            request()
        except psycopg.Error as error:
            if self._may_pass(error):
                raise
            at = _COPY_CONTEXT.search(error.diag.context or "")
            column = error.diag.column_name or (at[2] if at is not None else None)
            if column not in rows.kinds:
                column = None
            line = int(at[1]) if at is not None else 0
            if 0 < line <= len(rows.places):
                raise rejection(rows.table, column, rows.places[line - 1], self._error_reason(error)) from None
            rejected = UnplacedRejectionError(rows.table, column, self._error_reason(error))
            if (error.sqlstate or "").startswith(_ROW_CLASSES):
                raise rejected from None
            # Missing rights concern all rows.
            raise unusable(rows.table, self._error_reason(error)) from None

    def _check_deferred(self, cursor: Any) -> None:
        import psycopg

        try:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            if self._may_pass(error):
                raise
            raise UnplacedRejectionError(error.diag.table_name or "?", None, self._error_reason(error)) from None

    def _is_about_columns(self, error: BaseException) -> bool:
        import psycopg

        return isinstance(error, psycopg.Error) and error.sqlstate in _COLUMN_STATES


def _is_about_form(error: Exception) -> bool:
    """Return whether a value has no form for COPY; other errors come from the server."""
    import psycopg

    if isinstance(error, psycopg.Error):
        return error.sqlstate is None and isinstance(error, psycopg.DataError | psycopg.ProgrammingError)
    return isinstance(error, UnicodeError | TypeError | ValueError | OverflowError)


def _drop_limit(kind: "re.Match[str]") -> str:
    return "bpchar" if kind[0] == "character" else '"bit"'


def _find_fit(kind: str) -> Fit:
    return fit_of(kind, _DIALECT)


def _group_runs(
    rows: TableRows, columns: Sequence[str], defaults: frozenset[str]
) -> Iterable[tuple[TableRows, list[str]]]:
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
