"""Queries and statements over the tables of a catalogue; `Catalog` loads this module when it needs it."""

from collections.abc import Mapping
from typing import Any

from streamrt.kafka.completion_token import Offsets
from streamrt.sql.queries.ask import ask
from streamrt.sql.queries.change import change_rows
from streamrt.sql.queries.engines import choose_catalog_engine
from streamrt.sql.queries.query_sources import QueryHome, TableHolder
from streamrt.sql.queries.system_tables import make_system_tables
from streamrt.tables.access.positions import TopicPositions
from streamrt.tables.catalogue.catalog import Catalog
from streamrt.tables.catalogue.query_engine import Engine
from streamrt.tables.catalogue.statements import Execution
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.reading.query_result import QueryResult

__all__ = ["execute", "home_of", "query"]


def home_of(catalog: Catalog, tables: TableHolder | None = None) -> QueryHome:
    """Return where the names in queries of a catalogue lead.

    Args:
        catalog: the catalogue.
        tables: where its tables are, if not there.
    """
    holder = tables or catalog

    def read_bounds(info: TableInfo) -> Mapping[int, tuple[int, int]]:
        positions = TopicPositions(holder.links.admin(), str(info.topic), info.name, catalog.timeout)
        bounds = positions.read_bounds(range(positions.count()))
        return {number: (low, bounds.high[number]) for number, low in bounds.low.items()}

    return QueryHome(holder, make_system_tables(catalog, read_bounds), catalog.tables)


def query(
    catalog: Catalog,
    sql: str,
    args: Mapping[str, Any] | None,
    *,
    limit: int | None,
    timeout: float | None,
    after: Offsets | str | None,
    max_scan_bytes: int,
    engine: Engine,
    spark_session: Any,
) -> QueryResult:
    """Return the rows of a query; see `Catalog.query`."""
    return ask(
        home_of(catalog),
        sql,
        args,
        limit=limit,
        timeout=timeout,
        after=after,
        max_scan_bytes=max_scan_bytes,
        engine=choose_catalog_engine(engine, spark_session),
    )


def execute(catalog: Catalog, sql: str, args: Mapping[str, Any] | None, *, timeout: float | None) -> Execution:
    """Do what INSERT, UPDATE or DELETE says; see `Catalog.execute`."""
    return change_rows(home_of(catalog), sql, args, timeout=timeout)
