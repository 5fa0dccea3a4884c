"""How a catalogue reaches the engine of queries, which is in a layer above it."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

from streamrt.kafka.completion_token import Offsets

if TYPE_CHECKING:
    from streamrt.tables.catalogue.statements import Execution
    from streamrt.tables.reading.query_result import QueryResult

__all__ = ["MAX_SCAN_BYTES", "Engine", "QueryEngine", "load_query_engine"]

MAX_SCAN_BYTES = 4 * 1024**3
"""Bytes of records that a query reads at most unless it says otherwise: 4 GiB."""

Engine: TypeAlias = Literal["duckdb", "spark"]
"""What computes a query."""

_MODULE = "streamrt.sql.queries.catalog_queries"


class QueryEngine(Protocol):
    """Runs queries over the tables of a catalogue; `Catalog` says what each method does."""

    def query(
        self,
        catalog: Any,
        sql: str,
        args: Mapping[str, Any] | None,
        *,
        limit: int | None,
        timeout: float | None,
        after: Offsets | str | None,
        max_scan_bytes: int,
        engine: Engine,
        spark_session: Any,
    ) -> "QueryResult":
        """Return the rows of a query."""

    def execute(self, catalog: Any, sql: str, args: Mapping[str, Any] | None, *, timeout: float | None) -> "Execution":
        """Do what INSERT, UPDATE or DELETE says."""


def load_query_engine() -> QueryEngine:
    """Return the engine. Programs without queries do not import it."""
    return cast("QueryEngine", importlib.import_module(_MODULE))
