"""`PreparedQuery`: a query that was checked, and runs when its rows are asked for."""

import contextlib
import re
from collections.abc import Callable, Generator, Iterator, Sequence

import pyarrow as pa
from sqlglot import exp

from streamrt.errors import ArgumentValueError, QueryError, QueryTimeoutError, ResultTooLargeError
from streamrt.kafka.completion_token import Offsets
from streamrt.sql.expressions.coercion import TIMESTAMP, TIMESTAMP_LTZ
from streamrt.sql.queries.duckdb_engine import MEMORY_LIMIT, DuckDBEngine, TimeBudget, require_duckdb, without_zones
from streamrt.sql.queries.duckdb_text import SourceTable, translate_query
from streamrt.sql.queries.from_clause import QueryOutput
from streamrt.sql.queries.query_sources import QueryHome, RowSource, TableRows, find_source
from streamrt.tables.catalogue.query_engine import MAX_SCAN_BYTES

__all__ = ["PreparedQuery", "QueryLimits"]

_LOAD_BYTES = 32 * 1024**2
"""Bytes of rows that are handed to DuckDB at once."""


class QueryLimits:
    """Limits of a query.

    Args:
        rows: most rows of the result; None for all.
        timeout: seconds that it may work; None for any time.
        max_scan_bytes: bytes of records that it may read.
        memory: bytes of memory that DuckDB may use.
    """

    def __init__(
        self,
        rows: int | None = None,
        timeout: float | None = 60.0,
        max_scan_bytes: int = MAX_SCAN_BYTES,
        memory: int = MEMORY_LIMIT,
    ) -> None:
        self.rows = rows
        self.timeout = timeout
        self.max_scan_bytes = max_scan_bytes
        self.memory = memory


class PreparedQuery:
    """A query whose names and types are known.

    Args:
        home: where names lead.
        tree: the query, without parameters.
        limits: its limits.
        after: a token for which it waits.
        reshape: changes the columns of the result.

    Raises:
        SQLError: if it cannot run.
        TableNotFoundError: if it names a table that does not exist.
        ConfigurationError: if DuckDB is not installed.
    """

    def __init__(
        self,
        home: QueryHome,
        tree: exp.Expr,
        limits: QueryLimits,
        after: Offsets | None = None,
        reshape: Callable[[QueryOutput], QueryOutput] | None = None,
    ) -> None:
        require_duckdb()
        self._home = home
        self._limits = limits
        self._after = after
        self._sources: dict[str, RowSource] = {}
        self._names: dict[str, str] = {}
        made = translate_query(tree, self._find_table, home.view, reshape)
        self.sql = made.sql
        self.schema = pa.schema([pa.field(column.name, column.dtype) for column in made.columns])
        self._offsets: Offsets | None = None
        self._require_known_token()

    @property
    def tables(self) -> list[str]:
        """Names of the tables that it reads, sorted."""
        return sorted({source.name for source in self._sources.values()})

    @property
    def offsets(self) -> Offsets:
        """The offsets up to which it reads, for all tables; fixed by the first one who asks."""
        if self._offsets is None:
            self._offsets = self._fix_offsets(60.0 if self._limits.timeout is None else self._limits.timeout)
        return self._offsets

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
                    _ = self.offsets
                    self._load(engine, budget, failures)
                rows = engine.run(self.sql)
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
            for name, source in self._sources.items():
                engine.create_table(name, _select(source.schema, self._columns_of(name)))
            plan = engine.explain(self.sql)
        finally:
            engine.close()
        reads = [
            f"{name} = {source.name} ({self._describe_source(name, source)})" for name, source in self._sources.items()
        ]
        return "\n".join(
            ["reads:", *(f"  {each}" for each in reads), "query of DuckDB:", f"  {self.sql}", "plan:", plan]
        )

    def _describe_source(self, name: str, source: RowSource) -> str:
        columns = ", ".join(self._columns_of(name)) or "no columns"
        keys = "; only the keys of WHERE" if isinstance(source, TableRows) and source.key_set is not None else ""
        return f"{columns}{keys}{'; as it comes' if self._streams(name) else ''}"

    def _find_table(self, node: exp.Table) -> SourceTable:
        source = find_source(self._home, node)
        keys = source.key_set if isinstance(source, TableRows) else None
        identity = f"{source.name} {sorted(keys) if keys is not None else None}"
        name = self._names.get(identity)
        if name is None:
            name = self._names[identity] = f"s{len(self._names) + 1}"
            self._sources[name] = source
        return SourceTable(name, self._sources[name].schema)

    def _columns_of(self, name: str) -> list[str]:
        """Return the columns of a table that the text names, in the order of the table."""
        relations = re.findall(rf"\b{name} AS (r\d+)\b", self.sql)
        schema = self._sources[name].schema
        quoted = {column: column.replace('"', '""') for column in schema.names}
        return [
            column
            for column in schema.names
            if any(f'{relation}."{quoted[column]}"' in self.sql for relation in relations)
        ]

    def _streams(self, name: str) -> bool:
        """Return whether DuckDB reads a table once, so that it need not be in memory."""
        is_alone = len(self._sources) == 1 and len(re.findall(rf"\b{name} AS r\d+\b", self.sql)) == 1
        # DuckDB may compute a query of WITH twice.
        return is_alone and re.search(r"\bWITH wr\d+", self.sql) is None

    def _fix_offsets(self, timeout: float) -> Offsets:
        after = self._after
        fresh = False
        if after is not None and self._home.wait_for is not None:
            foreign = {each: offset for each, offset in after.items() if each.topic not in self._topics()}
            if foreign:
                self._home.wait_for(Offsets(foreign, after.ids), timeout)
                # Its outputs are there now, but transactions of others may hide them for a while.
                fresh = True
        fixed = Offsets({})
        for name, source in self._sources.items():
            fixed |= source.fix(self._columns_of(name), after, timeout, fresh=fresh)
        return fixed

    def _topics(self) -> set[str]:
        return {topic for source in self._sources.values() for topic in source.topics}

    def _require_known_token(self) -> None:
        if self._after is None or self._home.wait_for is not None:
            return
        foreign = sorted(set(self._after.topics) - self._topics())
        if foreign:
            raise ArgumentValueError(
                f"query(after=...): the token is of topic {', '.join(foreign)}, which is that of no table in the query; "
                "app.query() waits until the application has processed it"
            )

    def _load(self, engine: DuckDBEngine, budget: TimeBudget, failures: list[BaseException]) -> None:
        scanned = 0

        def on_poll(count: int) -> None:
            nonlocal scanned
            scanned += count
            budget.check()
            if scanned > self._limits.max_scan_bytes:
                raise ResultTooLargeError(
                    f"the query reads more than {self._limits.max_scan_bytes:,} bytes of records: fix the primary key "
                    "in WHERE, ask a materialized view instead, or allow more by max_scan_bytes="
                )

        for name, source in self._sources.items():
            columns = self._columns_of(name)
            batches = source.batches(on_poll)
            if self._streams(name):
                schema = without_zones(_select(source.schema, columns).empty_table()).schema
                reader = pa.RecordBatchReader.from_batches(schema, _record_failures(batches, columns, failures))
                engine.register(name, reader)
                continue
            engine.create_table(name, _select(source.schema, columns))
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


def _select(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    names = list(columns) or schema.names[:1]
    return pa.schema([schema.field(name) for name in names])
