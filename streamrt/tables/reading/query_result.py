"""`QueryResult`: the rows of a query, which runs when they are asked for."""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from streamrt.arguments import checked_int
from streamrt.common.files import replacing
from streamrt.errors import ConfigurationError, QueryError, ResultTooLargeError
from streamrt.extras import install_command
from streamrt.kafka.completion_token import Offsets
from streamrt.tables.reading.scan import MAX_BYTES, frame_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["QueryResult", "RunnableQuery", "print_rows"]

_SHOWN_ROWS = 20


class RunnableQuery(Protocol):
    """A query that was checked; `QueryResult` says what its rows are."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    @property
    def tables(self) -> list[str]:
        """Names of the tables that it reads."""

    @property
    def offsets(self) -> Offsets:
        """The offsets up to which it reads."""

    def run(self, started: Callable[[Callable[[], None]], None]) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows; `started` gets what cancels the run."""

    def explain(self) -> str:
        """Return how it runs."""


class QueryResult:
    """The rows of a query; `app.query` and `catalog.query` return it.

    Nothing is read before rows are asked for. The first call that does so fixes the offsets of all tables; each call runs
    the query again up to them, so that all calls see the same rows.

    Example:
        ```python
        result = app.query("SELECT customer, sum(total) AS total FROM shop.orders GROUP BY customer")
        for row in result:
            print(row["customer"], row["total"])
        result.to_parquet("totals")  # totals.parquet
        ```
    """

    def __init__(self, query: RunnableQuery) -> None:
        self._query = query
        self._running: list[Callable[[], None]] = []

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the types that Spark gives them. Known without running the query."""
        return self._query.schema

    @property
    def offsets(self) -> Offsets:
        """The offsets up to which all tables are read; asking for them fixes them."""
        return self._query.offsets

    @property
    def tables(self) -> list[str]:
        """Names of the tables that the query reads, sorted."""
        return self._query.tables

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with contextlib.closing(self.batches()) as batches:
            for batch in batches:
                yield from batch.to_pylist(maps_as_pydicts="strict")

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows as record batches of Arrow.

        Raises:
            QueryError: if a value cannot be computed, such as a division by zero, or the query was cancelled.
            QueryTimeoutError: if the query works longer than its `timeout`.
            ResultTooLargeError: if it reads too much, or needs too much memory.
            SerializationError: if a record is not a row of its table.
            KafkaRequestError: if records cannot be read.
        """
        cancels: list[Callable[[], None]] = []

        def started(cancel: Callable[[], None]) -> None:
            cancels.append(cancel)
            self._running.append(cancel)

        try:
            yield from self._query.run(started)
        finally:
            for each in cancels:
                self._running.remove(each)

    def to_arrow(self, max_bytes: int = MAX_BYTES) -> pa.Table:
        """Return the rows as a table of Arrow.

        Args:
            max_bytes: size in memory that the result may have.

        Raises:
            ResultTooLargeError: if it would be larger. Other errors are those of `batches`.
        """
        held: list[pa.RecordBatch] = []
        size = 0
        with contextlib.closing(self.batches()) as batches:
            for batch in batches:
                size += batch.nbytes
                if size > max_bytes:
                    raise ResultTooLargeError(
                        f"the rows take more than {max_bytes:,} bytes in memory: read them by batches() or to_parquet(), or "
                        "allow more by max_bytes="
                    )
                held.append(batch)
        return pa.Table.from_batches(held, self.schema)

    def to_pandas(self, max_bytes: int = MAX_BYTES) -> "pd.DataFrame":
        """Return the rows as a DataFrame of pandas; integers and booleans that may be null have types that know nulls.

        Args:
            max_bytes: size in memory, as Arrow, that the result may have.

        Raises:
            ResultTooLargeError: if it would be larger. Other errors are those of `batches`.
        """
        return frame_of(self.to_arrow(max_bytes))

    def to_polars(self, max_bytes: int = MAX_BYTES) -> "pl.DataFrame":
        """Return the rows as a DataFrame of polars. Needs the extra `polars`.

        Args:
            max_bytes: size in memory, as Arrow, that the result may have.

        Raises:
            ConfigurationError: if polars is not installed.
            ResultTooLargeError: if it would be larger. Other errors are those of `batches`.
        """
        try:
            import polars
        except ModuleNotFoundError:
            raise ConfigurationError(f"to_polars() needs polars: {install_command('polars')}") from None
        return polars.DataFrame(self.to_arrow(max_bytes))

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Write the rows into a Parquet file, and return their number. Memory does not grow with them.

        A file of this name is replaced when all rows are on disk; after an error it is unchanged.

        Args:
            path: the file; ".parquet" is appended unless it ends so.

        Raises:
            OSError: if the file cannot be written. Other errors are those of `batches`.
        """
        from pyarrow import parquet

        target = Path(path)
        if target.suffix != ".parquet":
            target = target.with_name(f"{target.name}.parquet")
        count = 0
        with (
            replacing(target) as unfinished,
            parquet.ParquetWriter(unfinished, self.schema) as writer,
            contextlib.closing(self.batches()) as batches,
        ):
            for batch in batches:
                writer.write_batch(batch)
                count += batch.num_rows
        return count

    def one(self) -> dict[str, Any]:
        """Return the only row.

        Raises:
            QueryError: if there is no row, or there are several. Other errors are those of `batches`.
        """
        rows: list[dict[str, Any]] = []
        with contextlib.closing(self.batches()) as batches:
            for batch in batches:
                rows += batch.slice(0, 2).to_pylist(maps_as_pydicts="strict")
                if len(rows) > 1:
                    raise QueryError("one() wants one row, and the query has several: iterate over the result")
        if not rows:
            raise QueryError("one() wants one row, and the query has none")
        return rows[0]

    def show(self, limit: int = _SHOWN_ROWS) -> None:
        """Print the first rows as a table.

        Args:
            limit: most rows.
        """
        sys.stdout.write(f"{self._draw(limit)}\n")

    def explain(self) -> str:
        """Return what is read of which table, the query that its engine gets, and the plan. No record is read."""
        return self._query.explain()

    def cancel(self) -> None:
        """End the query, from any thread: calls that return its rows raise QueryError. Later calls may run it again."""
        for each in list(self._running):
            each()

    def __str__(self) -> str:
        return self._draw(_SHOWN_ROWS)

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"<QueryResult {columns}>"

    def _draw(self, limit: int) -> str:
        checked_int("show(limit=...)", limit, 1, "a number of rows")
        rows: list[dict[str, Any]] = []
        has_more = False
        with contextlib.closing(self.batches()) as batches:
            for batch in batches:
                rows += batch.slice(0, limit + 1 - len(rows)).to_pylist(maps_as_pydicts="strict")
                if len(rows) > limit:
                    has_more = True
                    break
        made = print_rows(self.schema.names, rows[:limit])
        return f"{made}\nonly the first {limit} rows are shown" if has_more else made


def print_rows(names: list[str], rows: list[dict[str, Any]]) -> str:
    """Return rows as a table of text; NULL is shown as such.

    Args:
        names: names of the columns.
        rows: the rows.

    Example:
        >>> print(print_rows(["a"], [{"a": 1}, {"a": None}]))
        +------+
        | a    |
        +------+
        | 1    |
        | NULL |
        +------+
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn

    drawn = Drawn(box=box.ASCII2, show_header=True, header_style="")
    for name in names:
        drawn.add_column(_escape(name), overflow="fold", no_wrap=True)
    for row in rows:
        drawn.add_row(*(_escape("NULL" if row[name] is None else _show(row[name])) for name in names))
    target = io.StringIO()
    Console(file=target, width=10_000, color_system=None, legacy_windows=False).print(drawn)
    return target.getvalue().rstrip("\n")


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)


def _escape(text: str) -> str:
    from rich.markup import escape

    # Control characters would act on the terminal.
    return escape("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))
