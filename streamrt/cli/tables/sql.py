"""`streamrt sql`: queries and statements, one by one, from a file, or at a prompt."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption
from streamrt.cli.output import examples, note, quiet_pipe
from streamrt.cli.tables.catalog import CatalogOption, open_catalog
from streamrt.cli.tables.sql_output import QueryOptions, SQLEngine, SQLFormat, run_statement
from streamrt.errors import ConfigurationError, SQLSyntaxError, StreamRTError

if TYPE_CHECKING:
    from streamrt.tables import Catalog

__all__ = ["EXAMPLES", "sql"]

EXAMPLES = examples(
    "streamrt sql",
    'streamrt sql -c "SELECT customer, sum(amount) AS total FROM shop.orders GROUP BY customer"',
    'streamrt sql -c "SELECT * FROM shop.orders" --format parquet --output orders',
    "streamrt sql -f report.sql --format csv > report.csv",
    'streamrt sql --engine spark --timeout 3600 -c "SELECT customer, count(*) AS n FROM shop.orders GROUP BY customer"',
    "echo 'SELECT * FROM system.tables' | streamrt sql --format json",
)


def sql(
    command: Annotated[str | None, typer.Option("--command", "-c", metavar="TEXT", help="Statements to run.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="File with statements to run.")
    ] = None,
    sql_format: Annotated[
        SQLFormat, typer.Option("--format", help="How rows are printed: json has one row in each line.")
    ] = SQLFormat.table,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File for the rows, instead of stdout.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Most rows of each query.")] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds that each statement may work.")] = 60.0,
    max_scan_bytes: Annotated[
        int | None,
        typer.Option(min=1, metavar="BYTES", help="Bytes of records that each query may read; 4 GiB by default."),
    ] = None,
    engine: Annotated[
        SQLEngine, typer.Option(help="What computes queries: spark is for scans beyond memory.")
    ] = SQLEngine.duckdb,
    spark_master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master for --engine spark; local[*] by default.")
    ] = None,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Ask tables by SQL, and change rows. Without --command and --file: a prompt, or statements from stdin.

    Needs the extra `sql`.
    """
    if command is not None and file is not None:
        raise typer.BadParameter("pass it or --file", param_hint="--command")
    if spark_master is not None and engine is not SQLEngine.spark:
        raise typer.BadParameter("it is for --engine spark", param_hint="--spark-master")
    if sql_format is SQLFormat.parquet and output is None:
        raise typer.BadParameter("a file of this format needs a name: pass --output", param_hint="--format")
    options = QueryOptions(limit, timeout, max_scan_bytes, engine, spark_master)
    with quiet_pipe(), open_catalog(broker, config, 30.0, catalog) as opened:
        if command is None and file is None and sys.stdin.isatty():
            if output is not None:
                raise typer.BadParameter("it is for --command and --file", param_hint="--output")
            from streamrt.cli.tables.sql_prompt import SQLPrompt

            SQLPrompt(opened, sql_format, options).run()
            return
        _run_all(opened, _read_text(command, file), sql_format, output, options)


def _read_text(command: str | None, file: Path | None) -> str:
    if command is not None:
        return command
    if file is None:
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from None


def _run_all(catalog: "Catalog", text: str, sql_format: SQLFormat, output: Path | None, options: QueryOptions) -> None:
    """Run statements up to the first one that fails."""
    from streamrt.sql.queries.splitting import is_query, split_statements

    split = split_statements(text)
    statements = [*split.statements]
    if split.rest:
        statements.append((split.rest, text.count("\n", 0, text.rfind(split.rest)) + 1))
    if not statements:
        raise SQLSyntaxError("there is no statement")
    if output is not None and sum(is_query(each) for each, _ in statements) > 1:
        raise ConfigurationError("--output takes the rows of one query, and there are several")
    for statement, line in statements:
        try:
            run_statement(catalog, statement, sql_format, output, options)
        except StreamRTError as error:
            if len(statements) > 1:
                note(f"the statement in line {line} failed")
            raise error from None
