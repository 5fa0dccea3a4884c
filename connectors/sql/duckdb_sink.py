"""A sink for DuckDB databases."""

import datetime
import functools
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamrt.connectors.argument_checks import checked_type
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.failures import first_line
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sql.duckdb_inserts import ANY, Connection, RowWriter, fit, run_checked, type_of
from streamrt.connectors.sql.sql_rows import Row, TableRows, UnplacedRejectionError, ascii_lower
from streamrt.connectors.sql.sql_sink import PrimaryKeyColumns, SQLSink, TableName
from streamrt.connectors.sql.sql_staging import STAGED, Staging, staged_row
from streamrt.connectors.sql.sql_statement import Parameters, Statement
from streamrt.errors import SinkError

__all__ = ["DuckDBSink"]

_LOCKED = "Could not set lock on file"
_PASSING = (_LOCKED, "No space left", "Disk quota exceeded")
# Seconds between two attempts to open the database, at least and at most.
_WAIT = (0.02, 0.1)


class DuckDBSink(SQLSink):
    """Writes dicts to tables of a DuckDB database, each value once.

    The fields of a value are columns; tables and columns are created when they first occur. One process may have a
    database open for writing, so the sink opens it for each transaction, and closes it afterwards. Needs the extra
    `duckdb`.

    Args:
        path: path of the database file; it is created if it does not exist, its directory is not.
        table_name: name of the table, or a function that returns it for an item. None with `statement`.
        schema_auto_update: whether missing tables and columns are created.
        primary_key_columns: columns of the primary key of tables that the sink creates, or a function that returns them
            for an item. Use `__key` for the key of the record.
        upsert_on_primary_key: whether a row replaces the columns of the one with its primary key.
        on_conflict_do_nothing: whether a row is dropped if its primary key exists.
        include_metadata: whether the columns `__key` (the key of the record as text) and `timestamp` (its event time)
            are added.
        timeout: seconds to wait while other processes have the database open.
        memory_limit: the memory that DuckDB may use in each process, such as "1GB"; by default most of the machine's.
        threads: the number of its threads; by default that of the processors.
        statement: a statement that is run for each item, instead of writing a row: INSERT, UPDATE, DELETE, MERGE or WITH,
            with parameters such as `:sku`. Needs `name`, and goes without options of tables.
        parameters: returns the parameters for an item by name; by default, they are the fields of its value.
        position_table: name of the table that holds the positions of the group; None to write values at least once,
            without positions.
        name: name of the sink, unique in the application; by default that of the table. Required if `table_name` is a
            function.
        retries: how requests are repeated while the database is locked.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

    Raises:
        ConfigurationError: if an argument cannot be used, or duckdb is not installed.

    Example:
        ```python
        sink = DuckDBSink("shop.duckdb", "orders", primary_key_columns="order_id", upsert_on_primary_key=True)
        sdf.sink(sink)
        ```
    """

    _longest_identifier = 1_000
    _placeholder = "?"
    _position_type = "VARCHAR"
    _position_text = "VARCHAR"

    def __init__(
        self,
        path: str | Path,
        table_name: TableName | None = None,
        schema_auto_update: bool = True,
        primary_key_columns: PrimaryKeyColumns = (),
        upsert_on_primary_key: bool = False,
        on_conflict_do_nothing: bool = False,
        include_metadata: bool = True,
        timeout: float = 5.0,
        *,
        memory_limit: str | None = None,
        threads: int | None = None,
        statement: str | None = None,
        parameters: Parameters | None = None,
        position_table: str | None = "streamrt_positions",
        name: str | None = None,
        retries: Retries | None = None,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        require_library("DuckDBSink", "duckdb", "duckdb")
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
        wanted = "the path of a file"
        checked_type("DuckDBSink", "path", path, str | Path, wanted, lambda path: str(path) not in ("", ":memory:"))
        self._path = Path(path)
        self._timeout = checked_type(
            "DuckDBSink", "timeout", timeout, int | float, "0 seconds or more", lambda timeout: timeout >= 0
        )
        size = re.compile(r"\d+(\.\d+)? ?[KMGT]i?B")
        wanted = "a size such as '512MB' or '2GiB'"
        checked_type("DuckDBSink", "memory_limit", memory_limit, str, wanted, size.fullmatch, optional=True)
        checked_type("DuckDBSink", "threads", threads, int, "1 or more", lambda threads: threads >= 1, optional=True)
        # Extensions are neither downloaded nor loaded while records are written.
        self._config = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
        if memory_limit is not None:
            self._config["memory_limit"] = memory_limit
        if threads is not None:
            self._config["threads"] = str(threads)
        self._has_json: bool | None = None

    def setup(self) -> None:
        """Open the database, and create the table of positions.

        Raises:
            SinkError: if the database cannot be opened, or the table cannot be created.
        """
        import duckdb

        try:
            super().setup()
        except duckdb.Error as error:
            raise SinkError(f"the database {self._path} cannot be used: {self._error_reason(error)}") from None
        finally:
            self._disconnect()

    def _request_retried(self, request: Callable[[], Any], what: str) -> Any:
        import duckdb

        def request_and_close() -> Any:
            try:
                return request()
            finally:
                self._disconnect()

        try:
            return super()._request_retried(request_and_close, what)
        except duckdb.Error as error:
            raise SinkError(f"the sink {self.name}: {what} failed: {self._error_reason(error)}") from None

    def _connect(self) -> Connection:
        import duckdb

        # In an absolute path, no prefix such as `md:` chooses another kind of database.
        path = self._path.absolute()
        if not path.parent.is_dir():
            raise SinkError(f"the directory of the database {self._path} does not exist: create it")
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                connection = duckdb.connect(str(path), config=self._config)
                break
            except duckdb.Error as error:
                if not self._may_pass(error):
                    raise SinkError(
                        f"the database {self._path} cannot be opened: {self._error_reason(error)}"
                    ) from None
                if _LOCKED not in str(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(random.uniform(*_WAIT))  # noqa: S311 - spreads attempts, hides nothing
        # Times without a zone are in UTC.
        connection.execute("SET TimeZone = 'UTC'")
        if self._has_json is None:
            found = connection.execute(
                "SELECT loaded FROM duckdb_extensions() WHERE extension_name = 'json'"
            ).fetchone()
            self._has_json = bool(found and found[0])
        return Connection(connection)

    def _may_pass(self, error: BaseException) -> bool:
        import duckdb

        if isinstance(error, duckdb.TransactionException | duckdb.FatalException):
            # Another connection of this process was faster; or the database must be opened again.
            return True
        return isinstance(error, duckdb.IOException) and any(text in str(error) for text in _PASSING)

    def _error_reason(self, error: BaseException) -> str:
        # Errors about rows, whose messages quote values, are explained where rows are inserted.
        return first_line(error)

    def _type_of(self, value: Any) -> str | None:
        return type_of(value, "JSON" if self._has_json else "VARCHAR")

    def _make_timestamp(self, milliseconds: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(milliseconds=milliseconds)

    def _fold_name(self, name: str) -> str:
        return ascii_lower(name)

    def _find_columns(self, table: str) -> dict[str, str]:
        found = self._run_query(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = current_database()"
            " AND schema_name = current_schema() AND lower(table_name) = lower(?) ORDER BY column_index",
            table,
        )
        # lower() knows more letters than the names of tables do.
        return {row[1]: row[2] for row in found if ascii_lower(row[0]) == ascii_lower(table)}

    def _find_primary_key(self, table: str) -> tuple[str, ...]:
        found = self._run_query(
            "SELECT table_name, constraint_column_names FROM duckdb_constraints() WHERE database_name = current_database()"
            " AND schema_name = current_schema() AND constraint_type = 'PRIMARY KEY' AND lower(table_name) = lower(?)",
            table,
        )
        return next((tuple(row[1]) for row in found if ascii_lower(row[0]) == ascii_lower(table)), ())

    def _insert_rows(self, rows: TableRows, columns: Sequence[str]) -> None:
        converted = list(rows.convert_columns(columns, lambda kind: fit(self._connection, kind)))
        if not self._upsert and not self._ignore:
            self._write(rows, self._qualify_name(rows.table), columns, rows.kinds, converted)
            return
        target, staged = self._qualify_name(rows.table), f"temp.{STAGED}"
        staging = Staging(
            target, staged, rows, columns, self._find_defaults(rows.table), self._quote_name, self._key_in(rows)
        )
        cursor = self._connection.cursor()
        cursor.execute(staging.create(f"CREATE OR REPLACE TEMPORARY TABLE {STAGED}"))
        kinds = {**rows.kinds, **dict(zip(staging.extra, ("BIGINT", "VARCHAR", "BIGINT", "BIGINT"), strict=True))}
        every = [staged_row(staging, row, number) for number, row in enumerate(converted)]
        self._write(rows, staged, [*columns, *staging.extra], kinds, every)
        turns = 1
        cursor.execute(staging.find_equal_keys)
        if cursor.fetchone() is not None:
            cursor.execute(staging.take_turns)
            cursor.execute(staging.count_turns)
            turns = 1 if self._ignore else cursor.fetchone()[0]
        for turn in range(1, turns + 1):
            for statement in self._make_statements(staging, turn):
                run_checked(functools.partial(cursor.execute, statement), rows.table, self._may_pass)

    def _describe_statement(self, statement: Statement) -> dict[str, str]:
        with self._open_transaction() as cursor:
            # Their types are known when they have values.
            cursor.execute(f"PREPARE streamrt AS {statement.numbered()}")
            cursor.execute("DEALLOCATE streamrt")
        return dict.fromkeys(statement.names, ANY)

    def _execute_statement(self, statement: Statement, rows: TableRows) -> None:
        cursor, text = self._connection.cursor(), statement.numbered()
        converted = rows.convert_columns(statement.names, lambda kind: fit(self._connection, kind))
        for row, place in zip(converted, rows.places, strict=True):
            execute = functools.partial(cursor.execute, text, list(row.values()))
            try:
                run_checked(execute, rows.table, self._may_pass)
            except UnplacedRejectionError as error:
                raise error.at(place) from None

    def _make_statements(self, staging: Staging, turn: int) -> Iterator[str]:
        """Yield the statements of one turn: no one else writes to the database meanwhile."""
        same = staging.equal_keys("s", "t")
        updates = staging.updates("s") if self._upsert else []
        if updates:
            changes = ", ".join(f"{name} = {value}" for name, value in updates)
            yield (
                f"UPDATE {staging.target} t SET {changes} FROM {staging.staged} s"  # noqa: S608
                f" WHERE s.{staging.turn} = {turn} AND {same}"
            )
        for lacking, part in staging.parts.items():
            names = staging.inserted(lacking)
            yield (
                f"INSERT INTO {staging.target} ({names}) SELECT {names} FROM {staging.staged} s"  # noqa: S608
                f" WHERE {staging.where(part, turn)} AND NOT EXISTS (SELECT 1 FROM {staging.target} t WHERE {same})"
                f" ORDER BY s.{staging.row}"
            )

    def _key_in(self, rows: TableRows) -> Callable[[str, str], str]:
        """Return how columns of the primary key are compared: as its index does, which knows no collations."""

        def expression(table: str, column: str) -> str:
            name = f"{table}.{self._quote_name(column)}"
            return f"encode({name})" if rows.kinds[column] == "VARCHAR" else name

        return expression

    def _find_defaults(self, table: str) -> frozenset[str]:
        cursor = self._connection.cursor()
        cursor.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = current_database()"
            " AND schema_name = current_schema() AND lower(table_name) = lower(?) AND column_default IS NOT NULL",
            (table,),
        )
        return frozenset(row[1] for row in cursor.fetchall() if ascii_lower(row[0]) == ascii_lower(table))

    def _write(
        self, rows: TableRows, table: str, columns: Sequence[str], kinds: Mapping[str, str], converted: Sequence[Row]
    ) -> None:
        quoted = {column: self._quote_name(column) for column in columns}
        RowWriter(self._connection, table, quoted, kinds, self._may_pass).write(rows.table, converted)

    def _is_about_columns(self, error: BaseException) -> bool:
        import duckdb

        return isinstance(error, duckdb.CatalogException | duckdb.ParserException | duckdb.BinderException)
