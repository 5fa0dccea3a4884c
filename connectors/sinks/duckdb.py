"""A sink for DuckDB databases."""

import datetime
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.failures import first_line
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.duckdb_inserts import Connection, RowWriter, type_of
from streamrt.connectors.sinks.sql import PrimaryKeyColumns, SQLSink, TableName
from streamrt.connectors.sinks.sql_rows import TableRows, ascii_lower
from streamrt.errors import SinkError, argument_error

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
        table_name: name of the table, or a function that returns it for an item.
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
        table_name: TableName,
        schema_auto_update: bool = True,
        primary_key_columns: PrimaryKeyColumns = (),
        upsert_on_primary_key: bool = False,
        on_conflict_do_nothing: bool = False,
        include_metadata: bool = True,
        timeout: float = 5.0,
        *,
        memory_limit: str | None = None,
        threads: int | None = None,
        position_table: str | None = "streamrt_positions",
        name: str | None = None,
        retries: Retries | None = None,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        require_library("DuckDBSink", "duckdb", "duckdb")
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
        if not isinstance(path, str | Path) or str(path) in ("", ":memory:"):
            raise argument_error(
                f"DuckDBSink(path=...) must be the path of a file, got {path!r}", of_type=isinstance(path, str | Path)
            )
        numeric = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if not numeric or not timeout >= 0:
            raise argument_error(f"DuckDBSink(timeout=...) must be 0 seconds or more, got {timeout!r}", of_type=numeric)
        if memory_limit is not None and not re.fullmatch(r"\d+(\.\d+)? ?[KMGT]i?B", str(memory_limit)):
            raise argument_error(
                f"DuckDBSink(memory_limit=...) must be a size such as '512MB' or '2GiB', got {memory_limit!r}",
                of_type=isinstance(memory_limit, str),
            )
        whole = isinstance(threads, int) and not isinstance(threads, bool)
        if threads is not None and (not whole or threads < 1):
            raise argument_error(f"DuckDBSink(threads=...) must be 1 or more, got {threads!r}", of_type=whole)
        self._path = Path(path)
        self._timeout = timeout
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
            raise SinkError(f"the database {self._path} cannot be used: {self._reason(error)}") from None
        finally:
            self._disconnect()

    def _requested(self, request: Callable[[], Any], what: str) -> Any:
        import duckdb

        def request_and_close() -> Any:
            try:
                return request()
            finally:
                self._disconnect()

        try:
            return super()._requested(request_and_close, what)
        except duckdb.Error as error:
            raise SinkError(f"the sink {self.name}: {what} failed: {self._reason(error)}") from None

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
                if not self._passes(error):
                    raise SinkError(f"the database {self._path} cannot be opened: {self._reason(error)}") from None
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

    def _passes(self, error: BaseException) -> bool:
        import duckdb

        if isinstance(error, duckdb.TransactionException | duckdb.FatalException):
            # Another connection of this process was faster; or the database must be opened again.
            return True
        return isinstance(error, duckdb.IOException) and any(text in str(error) for text in _PASSING)

    def _reason(self, error: BaseException) -> str:
        # Errors about rows, whose texts quote values, are explained where rows are inserted.
        return first_line(error)

    def _type_of(self, value: Any) -> str | None:
        return type_of(value, "JSON" if self._has_json else "VARCHAR")

    def _timestamp(self, milliseconds: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(milliseconds=milliseconds)

    def _folded(self, name: str) -> str:
        return ascii_lower(name)

    def _find_columns(self, table: str) -> dict[str, str]:
        found = self._query(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = current_database()"
            " AND schema_name = current_schema() AND lower(table_name) = lower(?) ORDER BY column_index",
            table,
        )
        # lower() knows more letters than the names of tables do.
        return {row[1]: row[2] for row in found if ascii_lower(row[0]) == ascii_lower(table)}

    def _find_primary_key(self, table: str) -> tuple[str, ...]:
        found = self._query(
            "SELECT table_name, constraint_column_names FROM duckdb_constraints() WHERE database_name = current_database()"
            " AND schema_name = current_schema() AND constraint_type = 'PRIMARY KEY' AND lower(table_name) = lower(?)",
            table,
        )
        return next((tuple(row[1]) for row in found if ascii_lower(row[0]) == ascii_lower(table)), ())

    def _insert(self, rows: TableRows, columns: Sequence[str]) -> None:
        before: list[Callable[[], None]] = []
        if not self._upsert and not self._ignore:
            self._writer(rows, columns, "", before).write(rows)
            return
        for part, own in rows.by_columns(columns):
            names = [self._quoted(column) for column in own if column not in rows.primary_key]
            updates = ", ".join(f"{name} = excluded.{name}" for name in names)
            action = f"UPDATE SET {updates}" if self._upsert and updates else "NOTHING"
            conflict = f" ON CONFLICT ({', '.join(map(self._quoted, rows.primary_key))}) DO {action}"
            self._writer(part, own, conflict, before).write(part)

    def _writer(
        self, rows: TableRows, columns: Sequence[str], conflict: str, before: list[Callable[[], None]]
    ) -> RowWriter:
        quoted = {column: self._quoted(column) for column in columns}
        return RowWriter(self._connection, self._qualified(rows.table), quoted, conflict, before, self._passes)
