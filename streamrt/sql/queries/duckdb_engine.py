"""DuckDB, locked: without files, network, extensions, settings, and the variables of this program."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from streamrt.errors import (
    ConfigurationError,
    QueryError,
    QueryTimeoutError,
    ResultTooLargeError,
    SQLAnalysisError,
    StreamRTError,
)
from streamrt.extras import install_command
from streamrt.sql.expressions.coercion import TIMESTAMP, TIMESTAMP_LTZ
from streamrt.sql.queries.duckdb_types import duckdb_type, quote

if TYPE_CHECKING:
    import duckdb

__all__ = ["MEMORY_LIMIT", "DuckDBEngine", "TimeBudget", "require_duckdb"]

MEMORY_LIMIT = 2 * 1024**3
"""Bytes of memory that a query may use, 2 GiB: rows of its tables that it holds, and its intermediate results."""

_CONFIGURATION: dict[str, Any] = {
    "threads": 1,
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "temp_directory": "",
    "python_enable_replacements": False,
    "lock_configuration": True,
}
_BATCH_ROWS = 10_000
_INTERRUPT_EVERY_S = 0.1
T = TypeVar("T")


def require_duckdb() -> Any:
    """Return the module of DuckDB.

    Raises:
        ConfigurationError: if it is not installed; it names the extra.
    """
    try:
        import duckdb
    except ModuleNotFoundError:
        raise ConfigurationError(f"queries need DuckDB: run {install_command('sql')}") from None
    return duckdb


class TimeBudget:
    """How long a query may work. The time between two reads of its rows does not count.

    Args:
        seconds: the time; None for any.
        interrupt: called, in another thread, when it is over.
    """

    def __init__(self, seconds: float | None, interrupt: Callable[[], None]) -> None:
        self._seconds = seconds
        self._left = seconds
        self._interrupt = interrupt
        self._is_over = threading.Event()
        self._is_cancelled = threading.Event()
        self._has_paused = threading.Event()
        self._has_paused.set()

    def cancel(self) -> None:
        """End the query from another thread."""
        self._is_cancelled.set()
        threading.Thread(target=self._interrupt_work, name="streamrt-query-end", daemon=True).start()

    def check(self) -> None:
        """Raise if the query must end.

        Raises:
            QueryTimeoutError: if its time is over.
            QueryError: if it was cancelled.
        """
        if self._is_cancelled.is_set():
            raise QueryError("the query was cancelled")
        if self._is_over.is_set():
            raise QueryTimeoutError(
                f"the query did not end in {self._seconds:g} s: allow more by timeout=, or read less: fewer columns, a WHERE "
                "that fixes the primary key, or a materialized view with the result"
            )

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """Count the time inside."""
        import time

        # Before the check: who cancels after it sees that there is work.
        self._has_paused = paused = threading.Event()
        started, timer = time.monotonic(), None
        try:
            self.check()
            if self._left is not None:
                timer = threading.Timer(max(self._left, 0.0), self._end)
                timer.daemon = True
                timer.start()
            yield
        finally:
            paused.set()
            if timer is not None and self._left is not None:
                timer.cancel()
                self._left -= time.monotonic() - started

    def _end(self) -> None:
        self._is_over.set()
        self._interrupt_work()

    def _interrupt_work(self) -> None:
        # DuckDB forgets an interrupt that comes before it executes.
        paused = self._has_paused
        while not paused.is_set():
            self._interrupt()
            paused.wait(_INTERRUPT_EVERY_S)


class DuckDBEngine:
    """A DuckDB in memory for one query. Close it.

    Args:
        memory_limit: bytes of memory that it may use.
    """

    def __init__(self, memory_limit: int = MEMORY_LIMIT) -> None:
        self._duckdb = require_duckdb()
        self._limit = memory_limit
        # Once locked, settings cannot change, and the lock is the last of them.
        configuration = {**_CONFIGURATION, "memory_limit": f"{max(memory_limit // 1024, 1)}KiB"}
        self._connection: duckdb.DuckDBPyConnection = self._duckdb.connect(":memory:", config=configuration)

    def create_table(self, name: str, schema: pa.Schema) -> None:
        """Make an empty table."""
        columns = ", ".join(f"{quote(each.name)} {duckdb_type(each.type)}" for each in schema)
        self._run(lambda: self._connection.execute(f"CREATE TABLE {name} ({columns})"))

    def insert(self, name: str, rows: pa.Table) -> None:
        """Add rows to a table."""
        self._run(lambda: self._connection.register("arriving", without_zones(rows)))
        try:
            self._run(lambda: self._connection.execute(f"INSERT INTO {name} SELECT * FROM arriving"))
        finally:
            self._run(lambda: self._connection.unregister("arriving"))

    def register(self, name: str, reader: pa.RecordBatchReader) -> None:
        """Let a query read rows once, as they come."""
        self._run(lambda: self._connection.register(name, reader))

    def run(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query.

        Args:
            sql: the query, as `to_duckdb` has made it.

        Raises:
            QueryError: if a value cannot be computed.
            ResultTooLargeError: if it needs more memory.
        """
        reader = self._run(lambda: self._open_reader(sql))
        while True:
            try:
                batch = self._run(reader.read_next_batch)
            except StopIteration:
                return
            if batch.num_rows:
                yield batch

    def explain(self, sql: str) -> str:
        """Return the plan of a query as text."""
        rows = self._run(lambda: self._connection.execute(f"EXPLAIN {sql}").fetchall())
        return "\n".join(str(row[-1]) for row in rows)

    def interrupt(self) -> None:
        """End what runs now, from another thread."""
        # It may have been closed meanwhile.
        with contextlib.suppress(self._duckdb.Error):
            self._connection.interrupt()

    def close(self) -> None:
        """Forget everything."""
        self._connection.close()

    def _open_reader(self, sql: str) -> pa.RecordBatchReader:
        relation = self._connection.sql(sql)
        # The name of the method in DuckDB 1, and in DuckDB 2.
        open_reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
        reader: pa.RecordBatchReader = open_reader(_BATCH_ROWS)
        return reader

    def _run(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except StopIteration:
            raise
        except (self._duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._translate(error) from None
        except RuntimeError as error:
            # DuckDB makes it of Ctrl+C.
            if "interrupt" in str(error).lower():
                raise KeyboardInterrupt from None
            raise

    def _translate(self, error: Exception) -> StreamRTError:
        text = str(error).split("\n", 1)[0]
        kind = type(error)
        known = self._duckdb
        if isinstance(error, known.OutOfMemoryException) or "Out of Memory" in text:
            return ResultTooLargeError(
                f"the query needs more than {self._limit / 1024**3:.3g} GiB of memory: choose columns, filter or aggregate "
                "before joins and ORDER BY, or keep the result up to date as a materialized view"
            )
        if isinstance(error, known.BinderException):
            return SQLAnalysisError(_without_prefix(text))
        if isinstance(error, known.InterruptException) or "INTERRUPT" in text:
            return QueryError("the query was interrupted")
        return QueryError(f"{_without_prefix(text)}" or kind.__name__)


def without_zones(rows: pa.Table) -> pa.Table:
    """Return rows whose times in UTC are times without a zone."""
    for number, field in enumerate(rows.schema):
        if field.type == TIMESTAMP_LTZ:
            rows = rows.set_column(number, field.with_type(TIMESTAMP), rows.column(number).cast(TIMESTAMP))
    return rows


def _without_prefix(text: str) -> str:
    """Return an error of DuckDB without the name of its kind, and in our manner."""
    parts = text.split(": ")
    while len(parts) > 1 and parts[0].endswith(("Error", "Exception")):
        parts.pop(0)
    shown = ": ".join(parts)
    return shown[:1].lower() + shown[1:]
