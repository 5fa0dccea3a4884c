"""`streamrt sql`: queries and statements, one by one, from a file, or at a prompt."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption
from streamrt.cli.control import TokenFileOption, connected
from streamrt.cli.output import examples, note, quiet_pipe
from streamrt.cli.tables.catalog import CatalogOption, open_catalog
from streamrt.cli.tables.sql_output import SQLFormat, run_statement
from streamrt.cli.tables.sql_targets import ApplicationTarget, CatalogTarget, QueryOptions, SQLEngine, SQLTarget
from streamrt.errors import ConfigurationError, SQLSyntaxError, StreamRTError

__all__ = ["EXAMPLES", "sql"]

EXAMPLES = examples(
    "streamrt sql",
    'streamrt sql -c "SELECT customer, sum(amount) AS total FROM shop.orders GROUP BY customer"',
    'streamrt sql -c "SELECT * FROM shop.orders" --format parquet --output orders',
    "streamrt sql -f report.sql --format csv > report.csv",
    'streamrt sql --engine spark --timeout 3600 -c "SELECT customer, count(*) AS n FROM shop.orders GROUP BY customer"',
    "echo 'SELECT * FROM system.tables' | streamrt sql --format json",
    'streamrt sql --url http://127.0.0.1:7070 -c "SELECT topic, sum(lag) AS lag FROM system.lag GROUP BY topic"',
)


def sql(
    context: typer.Context,
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
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="Seconds that each statement may work; by default 60, or as many as the application at --url allows.",
        ),
    ] = None,
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
    url: Annotated[
        str | None,
        typer.Option(help="Control address of a running application, which computes queries, over its state as well."),
    ] = None,
    token_file: TokenFileOption = None,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Ask tables by SQL, and change rows. Without --command and --file: a prompt, or statements from stdin.

    Needs the extra `sql`; with --url also `control`.
    """
    if command is not None and file is not None:
        raise typer.BadParameter("pass it or --file", param_hint="--command")
    if spark_master is not None and engine is not SQLEngine.spark:
        raise typer.BadParameter("it is for --engine spark", param_hint="--spark-master")
    if sql_format is SQLFormat.parquet and output is None:
        raise typer.BadParameter("a file of this format needs a name: pass --output", param_hint="--format")
    _refuse_others(context, url)
    options = QueryOptions(limit, timeout, max_scan_bytes, engine, spark_master)
    with quiet_pipe(), contextlib.ExitStack() as stack:
        target: SQLTarget
        if url is None:
            target = CatalogTarget(stack.enter_context(open_catalog(broker, config, 30.0, catalog)), options)
        else:
            target = ApplicationTarget(stack.enter_context(connected(url, token_file)), options)
        if command is None and file is None and sys.stdin.isatty():
            if output is not None:
                raise typer.BadParameter("it is for --command and --file", param_hint="--output")
            from streamrt.cli.tables.sql_prompt import SQLPrompt

            SQLPrompt(target, sql_format).run()
            return
        _run_all(target, _read_text(command, file), sql_format, output)


def _refuse_others(context: typer.Context, url: str | None) -> None:
    """Refuse options of the command line that have no effect; variables may be there for other commands."""
    others = ("broker", "config", "catalog", "engine", "spark_master") if url is not None else ("token_file",)
    for name in others:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            why = f"it has no effect {'without' if url is None else 'with'} --url"
            raise typer.BadParameter(why, param_hint=f"--{name.replace('_', '-')}")


def _read_text(command: str | None, file: Path | None) -> str:
    if command is not None:
        return command
    if file is None:
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from None


def _run_all(target: SQLTarget, text: str, sql_format: SQLFormat, output: Path | None) -> None:
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
            run_statement(target, statement, sql_format, output)
        except StreamRTError as error:
            if len(statements) > 1:
                note(f"the statement in line {line} failed")
            raise error from None
