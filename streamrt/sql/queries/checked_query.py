"""`CheckedQuery`: a query whose names and types are known, and what it reads. An engine computes its rows."""

import re
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlglot import exp

from streamrt.errors import ArgumentValueError, ResultTooLargeError
from streamrt.kafka.completion_token import Offsets
from streamrt.sql.queries.duckdb_engine import MEMORY_LIMIT
from streamrt.sql.queries.duckdb_text import SourceTable, translate_query
from streamrt.sql.queries.from_clause import QueryOutput
from streamrt.sql.queries.query_sources import (
    STATE,
    QueriedApplication,
    QueryHome,
    RowSource,
    TableRows,
    find_source,
)
from streamrt.tables.catalogue.query_engine import MAX_SCAN_BYTES

__all__ = ["CheckedQuery", "QueryLimits", "select_columns"]

_SHORTEST_WAIT_S = 0.1
"""Seconds for the offsets of a table when the time of the query is over: most are there at once."""


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

    def check_scanned(self, scanned: int) -> None:
        """Raise if a query has read too much.

        Args:
            scanned: bytes of records.

        Raises:
            ResultTooLargeError: if they are more than the limit.
        """
        if scanned > self.max_scan_bytes:
            raise ResultTooLargeError(
                f"the query reads more than {self.max_scan_bytes:,} bytes of records: fix the primary key in WHERE, ask a "
                "materialized view instead, or allow more by max_scan_bytes="
            )


class CheckedQuery:
    """A query whose names and types are known.

    Args:
        home: where names lead.
        tree: the query, without parameters.
        limits: its limits.
        after: a token for which it waits.
        reshape: changes the columns of the result.

    Attributes:
        home: where names lead.
        tree: the query.
        limits: its limits.
        duckdb_sql: the query in DuckDB's SQL.
        schema: the columns of the result.
        sources: what it reads, by the names in `duckdb_sql`.

    Raises:
        SQLError: if it cannot run.
        TableNotFoundError: if it names a table that does not exist.
    """

    def __init__(
        self,
        home: QueryHome,
        tree: exp.Expr,
        limits: QueryLimits,
        after: Offsets | None = None,
        reshape: Callable[[QueryOutput], QueryOutput] | None = None,
    ) -> None:
        self.home = home
        self.tree = tree
        self.limits = limits
        self._after = after
        self.sources: dict[str, RowSource] = {}
        self._names: dict[str, str] = {}
        made = translate_query(tree, self._find_table, home.view, reshape)
        self.duckdb_sql = made.sql
        self.schema = pa.schema([pa.field(column.name, column.dtype) for column in made.columns])
        self._offsets: Offsets | None = None
        self._require_known_token()

    @property
    def tables(self) -> list[str]:
        """Names of the tables that it reads, sorted."""
        return sorted({source.name for source in self.sources.values()})

    @property
    def offsets(self) -> Offsets:
        """The offsets up to which it reads, for all tables; fixed by the first one who asks."""
        if self._offsets is None:
            self._offsets = self._fix_offsets(60.0 if self.limits.timeout is None else self.limits.timeout)
        return self._offsets

    def find_name(self, node: exp.Table) -> str:
        """Return the name of a table in FROM in `sources`.

        Args:
            node: the table; its conditions are looked at as well.
        """
        source = find_source(self.home, node)
        keys = source.key_set if isinstance(source, TableRows) else None
        identity = f"{source.name} {sorted(keys) if keys is not None else None}"
        name = self._names.get(identity)
        if name is None:
            name = self._names[identity] = f"s{len(self._names) + 1}"
            self.sources[name] = source
        return name

    def columns_of(self, name: str) -> list[str]:
        """Return the columns of a table that the query names, in the order of the table."""
        relations = re.findall(rf"\b{name} AS (r\d+)\b", self.duckdb_sql)
        schema = self.sources[name].schema
        quoted = {column: column.replace('"', '""') for column in schema.names}
        return [
            column
            for column in schema.names
            if any(f'{relation}."{quoted[column]}"' in self.duckdb_sql for relation in relations)
        ]

    def is_read_once(self, name: str) -> bool:
        """Return whether a table is read once, so that it need not be in memory."""
        is_alone = len(self.sources) == 1 and len(re.findall(rf"\b{name} AS r\d+\b", self.duckdb_sql)) == 1
        # DuckDB may compute a query of WITH twice.
        return is_alone and re.search(r"\bWITH wr\d+", self.duckdb_sql) is None

    def describe_source(self, name: str, *notes: str) -> str:
        """Return what is read of a table.

        Args:
            name: its name in `sources`.
            notes: what an engine adds.
        """
        source = self.sources[name]
        is_keyed = isinstance(source, TableRows) and source.key_set is not None
        parts = [
            ", ".join(self.columns_of(name)) or "no columns",
            *(["only the keys of WHERE"] if is_keyed else []),
            *notes,
        ]
        return f"{name} = {source.name} ({'; '.join(parts)})"

    def _find_table(self, node: exp.Table) -> SourceTable:
        name = self.find_name(node)
        return SourceTable(name, self.sources[name].schema)

    def _fix_offsets(self, timeout: float) -> Offsets:
        until = time.monotonic() + timeout
        fresh = self._wait_for_application(timeout)
        fixed = Offsets({})
        for name, source in self.sources.items():
            left = max(_SHORTEST_WAIT_S, until - time.monotonic())
            fixed |= source.fix(self.columns_of(name), self._after, left, fresh=fresh)
        return fixed

    def _wait_for_application(self, timeout: float) -> bool:
        """Wait until the application has processed the token; return whether it had something to process.

        Then its outputs are there, but transactions of others may hide them for a while.
        """
        after, application = self._after, self.home.application
        if after is None or application is None:
            return False
        own = self._topics()
        # Rows that the application makes follow from its inputs, also if the query reads these itself.
        inputs = set(application.input_topics()) if self._has_made_rows(application) else set()
        awaited = {each: offset for each, offset in after.items() if each.topic not in own or each.topic in inputs}
        if awaited:
            application.wait_for(Offsets(awaited, after.ids), timeout)
        return bool(awaited)

    def _has_made_rows(self, application: QueriedApplication) -> bool:
        """Return whether the query reads rows that the application makes."""
        made = set(application.output_tables())
        return any(source.name in made or source.name.startswith(f"{STATE}.") for source in self.sources.values())

    def _topics(self) -> set[str]:
        return {topic for source in self.sources.values() for topic in source.topics}

    def _require_known_token(self) -> None:
        if self._after is None or self.home.application is not None:
            return
        foreign = sorted(set(self._after.topics) - self._topics())
        if foreign:
            raise ArgumentValueError(
                f"query(after=...): the token is of topic {', '.join(foreign)}, which is that of no table in the query; "
                "app.query() waits until the application has processed it"
            )


def select_columns(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the columns that are read of a table: some column, if a query names none, because it counts."""
    names = list(columns) or schema.names[:1]
    return pa.schema([schema.field(name) for name in names])
