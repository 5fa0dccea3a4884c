"""Targets of `streamrt sql`: a catalogue, whose queries run in this process, or a running application, over HTTP."""

import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from streamrt.control import Client
    from streamrt.schema import Schema
    from streamrt.tables import Catalog, QueryResult
    from streamrt.tables.catalogue.statements import Execution

__all__ = ["ApplicationTarget", "CatalogTarget", "ListedTable", "QueryOptions", "SQLEngine", "SQLTarget"]

_TIMEOUT_S = 60.0
_LISTING_S = 30.0
"""Seconds for which a list of tables serves completion, which is asked for at each key."""
_CATALOG_TABLES = ("system.applications", "system.tables", "system.topics", "system.usages")


class SQLEngine(str, enum.Enum):
    """Engine that computes queries."""

    duckdb = "duckdb"
    spark = "spark"


@dataclass(frozen=True)
class QueryOptions:
    """How statements run.

    Attributes:
        limit: most rows of a query.
        timeout: seconds that each statement may work; None for the default.
        max_scan_bytes: bytes of records that a query may read; None for the default.
        engine: what computes queries.
        spark_master: Spark's master; None for the default.
    """

    limit: int | None = None
    timeout: float | None = None
    max_scan_bytes: int | None = None
    engine: SQLEngine = SQLEngine.duckdb
    spark_master: str | None = None

    @property
    def scanned(self) -> int:
        """Bytes of records that a query may read."""
        from streamrt.tables.catalogue.query_engine import MAX_SCAN_BYTES

        return self.max_scan_bytes or MAX_SCAN_BYTES


@dataclass(frozen=True)
class ListedTable:
    """A table, as a prompt lists and describes it.

    Attributes:
        name: its name.
        kind: its kind.
        comment: what is said of it.
        schema: its columns; None if they are not known.
    """

    name: str
    kind: str
    comment: str = ""
    schema: "Schema | None" = None


class SQLTarget(Protocol):
    """Runs statements, and knows tables.

    Attributes:
        system: names of the system tables.
    """

    system: Sequence[str]

    def query(self, sql: str) -> "QueryResult":
        """Return the rows of a query."""

    def execute(self, sql: str) -> "Execution":
        """Do what a statement says."""

    def tables(self) -> list[ListedTable]:
        """Return the tables."""


class CatalogTarget:
    """The tables of a catalogue; queries are computed by this process, or by Spark.

    Args:
        catalog: the catalogue.
        options: how statements run.
    """

    system: Sequence[str] = _CATALOG_TABLES

    def __init__(self, catalog: "Catalog", options: QueryOptions) -> None:
        self._catalog = catalog
        self._options = options
        self._timeout = options.timeout or _TIMEOUT_S

    def query(self, sql: str) -> "QueryResult":
        """Return the rows of a query."""
        options = self._options
        return self._catalog.query(
            sql,
            limit=options.limit,
            timeout=self._timeout,
            max_scan_bytes=options.scanned,
            engine=options.engine.value,
            spark_session=self._open_spark(),
        )

    def execute(self, sql: str) -> "Execution":
        """Do what a statement says."""
        return self._catalog.execute(sql, timeout=self._timeout)

    def tables(self) -> list[ListedTable]:
        """Return the tables."""
        infos = self._catalog.infos()
        return [ListedTable(info.name, info.kind, info.comment or "", info.schema) for info in infos]

    def _open_spark(self) -> Any:
        if self._options.spark_master is None:
            return None
        from streamrt.spark.sessions.spark_session import create_spark_session

        return create_spark_session(self._options.spark_master)


class ApplicationTarget:
    """The tables and the state of a running application, which computes the queries.

    Args:
        client: the client of its control server.
        options: how statements run; the time that the application allows, if they have none.
    """

    system: Sequence[str] = (*_CATALOG_TABLES, "system.lag", "system.offsets")

    def __init__(self, client: "Client", options: QueryOptions) -> None:
        self._client = client
        self._options = options
        self._listed: list[ListedTable] = []
        self._listed_until = 0.0

    def query(self, sql: str) -> "QueryResult":
        """Return the rows of a query."""
        options = self._options
        return self._client.query(sql, limit=options.limit, timeout=options.timeout, max_scan_bytes=options.scanned)

    def execute(self, sql: str) -> "Execution":
        """Do what a statement says."""
        self._listed_until = 0.0
        return self._client.execute(sql, timeout=self._options.timeout)

    def tables(self) -> list[ListedTable]:
        """Return the tables that the caller may use."""
        from streamrt.schema import Schema

        if time.monotonic() >= self._listed_until:
            rows = self._client.query(
                "SELECT name, kind, comment, schema FROM system.tables ORDER BY name", timeout=None
            )
            self._listed = [
                ListedTable(
                    row["name"],
                    row["kind"],
                    row["comment"] or "",
                    None if row["schema"] is None else Schema.parse(row["schema"]),
                )
                for row in rows
            ]
            self._listed_until = time.monotonic() + _LISTING_S
        return self._listed
