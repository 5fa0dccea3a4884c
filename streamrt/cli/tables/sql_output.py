"""Statements that `streamrt sql` runs, and what it prints of them."""

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streamrt.cli.output import note, plural
from streamrt.cli.tables.sql_targets import SQLTarget

if TYPE_CHECKING:
    from streamrt.tables import QueryResult

__all__ = ["SQLFormat", "run_statement"]


class SQLFormat(str, enum.Enum):
    """How rows are printed."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def run_statement(target: SQLTarget, statement: str, sql_format: SQLFormat, output: Path | None = None) -> None:
    """Run one statement, and print what it gives.

    Args:
        target: what runs it.
        statement: the statement.
        sql_format: the format of rows.
        output: the file for rows; None means stdout.
    """
    from streamrt.sql.queries.splitting import is_query

    if is_query(statement):
        print_result(target.query(statement), sql_format, output)
        return
    done = target.execute(statement)
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
