"""`DuckDBQuery`: a checked query that DuckDB computes when its rows are asked for."""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence

import pyarrow as pa

from streamrt.errors import QueryError, QueryTimeoutError
from streamrt.kafka.completion_token import Offsets
from streamrt.sql.expressions.coercion import TIMESTAMP, TIMESTAMP_LTZ
from streamrt.sql.queries.checked_query import CheckedQuery, select_columns
from streamrt.sql.queries.duckdb_engine import DuckDBEngine, TimeBudget, require_duckdb, without_zones

__all__ = ["DuckDBQuery"]

_LOAD_BYTES = 32 * 1024**2
"""Bytes of rows that are handed to DuckDB at once."""


class DuckDBQuery:
    """A query that DuckDB computes in this process.

    Args:
        query: the query.

    Raises:
        ConfigurationError: if DuckDB is not installed.
    """

    def __init__(self, query: CheckedQuery) -> None:
        require_duckdb()
        self._query = query
        self._limits = query.limits
        self.schema = query.schema

    @property
    def tables(self) -> list[str]:
        """Names of the tables that it reads, sorted."""
        return self._query.tables

    @property
    def offsets(self) -> Offsets:
        """The offsets up to which it reads, for all tables; fixed by the first one who asks."""
        return self._query.offsets

    def run(self, started: Callable[[Callable[[], None]], None]) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows.

        Args:
            started: gets what cancels the query.
        """
        left = self._limits.rows
        if left == 0:
            return
        engine = DuckDBEngine(self._limits.memory)
        budget = TimeBudget(self._limits.timeout, engine.interrupt)
        started(budget.cancel)
        failures: list[BaseException] = []
        try:
            with _explaining(budget, failures):
                with budget.spending():
                    _ = self._query.offsets
                    self._load(engine, budget, failures)
                rows = engine.run(self._query.duckdb_sql)
                while True:
                    with budget.spending():
                        batch = next(rows, None)
                    budget.check()
                    if batch is None:
                        return
                    batch = self._fit(batch if left is None else batch.slice(0, left))
                    yield batch
                    if left is not None:
                        left -= batch.num_rows
                        if left <= 0:
                            return
        finally:
            engine.close()

    def explain(self) -> str:
        """Return what it reads, its text for DuckDB, and DuckDB's plan; nothing is read."""
        engine = DuckDBEngine(self._limits.memory)
        try:
            for name, source in self._query.sources.items():
                engine.create_table(name, select_columns(source.schema, self._query.columns_of(name)))
            plan = engine.explain(self._query.duckdb_sql)
        finally:
            engine.close()
        query = self._query
        reads = [
            query.describe_source(name, *(["as it comes"] if query.is_read_once(name) else []))
            for name in query.sources
        ]
        return "\n".join(
            [
                "reads:",
                *(f"  {each}" for each in reads),
                "query of DuckDB:",
                f"  {self._query.duckdb_sql}",
                "plan:",
                plan,
            ]
        )

    def _load(self, engine: DuckDBEngine, budget: TimeBudget, failures: list[BaseException]) -> None:
        scanned = 0

        def on_poll(count: int) -> None:
            nonlocal scanned
            scanned += count
            budget.check()
            self._limits.check_scanned(scanned)

        for name, source in self._query.sources.items():
            columns = self._query.columns_of(name)
            batches = source.batches(on_poll)
            if self._query.is_read_once(name):
                schema = without_zones(select_columns(source.schema, columns).empty_table()).schema
                reader = pa.RecordBatchReader.from_batches(schema, _record_failures(batches, columns, failures))
                engine.register(name, reader)
                continue
            engine.create_table(name, select_columns(source.schema, columns))
            for rows in _join_batches(batches, columns, source.schema):
                engine.insert(name, rows)
                budget.check()

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of DuckDB with the types that they have in Spark."""
        columns = []
        for values, field in zip(batch.columns, self.schema, strict=True):
            made = values
            if made.type != field.type:
                # Times in UTC were times without a zone.
                made = (
                    made.cast(TIMESTAMP).cast(TIMESTAMP_LTZ) if field.type == TIMESTAMP_LTZ else made.cast(field.type)
                )
            columns.append(made)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@contextlib.contextmanager
def _explaining(budget: TimeBudget, failures: list[BaseException]) -> Iterator[None]:
    """Raise the error that ended a scan, or what the time limit says, in place of what DuckDB makes of it."""
    try:
        yield
    except (QueryError, QueryTimeoutError):
        if failures:
            raise failures[0] from None
        budget.check()
        raise


def _record_failures(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str], failures: list[BaseException]
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in batches:
            rows = without_zones(pa.Table.from_batches([batch.select(columns) if columns else batch]))
            yield from rows.to_batches()
    except BaseException as error:
        failures.append(error)
        raise


def _join_batches(batches: Iterator[pa.RecordBatch], columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    names = list(columns) or schema.names[:1]
    for batch in batches:
        held.append(batch.select(names))
        size += batch.nbytes
        if size >= _LOAD_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)
