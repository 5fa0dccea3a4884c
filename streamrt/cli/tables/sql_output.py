"""Statements that `streamrt sql` runs, and what it prints of them."""

import enum
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamrt.cli.output import note, plural

if TYPE_CHECKING:
    from streamrt.tables import Catalog, QueryResult

__all__ = ["QueryOptions", "SQLEngine", "SQLFormat", "run_statement"]


class SQLFormat(str, enum.Enum):
    """How rows are printed."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


class SQLEngine(str, enum.Enum):
    """Engine that computes queries."""

    duckdb = "duckdb"
    spark = "spark"


@dataclass(frozen=True)
class QueryOptions:
    """How statements run.

    Attributes:
        limit: most rows of a query.
        timeout: seconds that each statement may work.
        max_scan_bytes: bytes of records that a query may read; None for the default.
        engine: what computes queries.
        spark_master: Spark's master; None for the default.
    """

    limit: int | None
    timeout: float
    max_scan_bytes: int | None = None
    engine: SQLEngine = SQLEngine.duckdb
    spark_master: str | None = None

    def query(self, catalog: "Catalog", sql: str) -> "QueryResult":
        """Return the rows of a query."""
        from streamrt.tables.catalogue.query_engine import MAX_SCAN_BYTES

        return catalog.query(
            sql,
            limit=self.limit,
            timeout=self.timeout,
            max_scan_bytes=self.max_scan_bytes or MAX_SCAN_BYTES,
            engine=self.engine.value,
            spark_session=self._open_spark(),
        )

    def _open_spark(self) -> Any:
        if self.spark_master is None:
            return None
        from streamrt.spark.sessions.spark_session import create_spark_session

        return create_spark_session(self.spark_master)


def run_statement(
    catalog: "Catalog", statement: str, sql_format: SQLFormat, output: Path | None, options: QueryOptions
) -> None:
    """Run one statement, and print what it gives.

    Args:
        catalog: the catalogue.
        statement: the statement.
        sql_format: the format of rows.
        output: the file for rows; None means stdout.
        options: how it runs.
    """
    from streamrt.sql.queries.splitting import is_query

    if is_query(statement):
        print_result(options.query(catalog, statement), sql_format, output)
        return
    done = catalog.execute(statement, timeout=options.timeout)
    if done.statement in ("INSERT", "UPDATE", "DELETE"):
        note(f"{done.statement} {done.name}: {plural(done.rows, 'row')}")
    else:
        note(f"{done.statement} {done.name}{'' if done.changed else ': nothing to do'}")


def print_result(result: "QueryResult", sql_format: SQLFormat, output: Path | None) -> None:
    """Print the rows of a query, or write them into a file."""
    from streamrt.cli.tables.row_output import open_output, write_rows
    from streamrt.tables.reading.query_result import print_rows

    names = list(result.schema.names)
    if sql_format is SQLFormat.parquet and output is not None:
        note(plural(result.to_parquet(output), "row"))
        return
    with open_output(output) as target:
        if sql_format is SQLFormat.table:
            rows = list(result)
            target.write(f"{print_rows(names, rows)}\n")
            if target is sys.stdout:
                note(plural(len(rows), "row"))
            return
        write_rows(target, "csv" if sql_format is SQLFormat.csv else "jsonl", names, result.batches())
