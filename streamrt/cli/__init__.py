"""The command `streamrt`."""

import sys
from typing import Annotated

import typer

from streamrt.cli import control, groups, jars, topics
from streamrt.cli.diagnosis import doctor, explain
from streamrt.cli.output import echo, examples
from streamrt.cli.programs import (
    dev,
    example_programs,
    init,
    plan,
    repartition,
    reset,
    run,
    savepoint,
    state,
    swap,
    verify,
)
from streamrt.cli.records import consume, dlq, produce
from streamrt.cli.tables import catalog as catalogs
from streamrt.cli.tables import sql, table_copy, table_maintain, table_release
from streamrt.cli.tables import table as tables
from streamrt.errors import StreamRTError, reference_of

__all__ = ["app", "main"]

app = typer.Typer(
    name="streamrt",
    help="Kafka-native stream processing for Python.",
    no_args_is_help=True,
    epilog="Exit codes: 0 done; 1 failed, with one sentence on stderr; 2 wrong options or arguments.",
    pretty_exceptions_enable=False,
)
app.add_typer(catalogs.app, name="catalog")
app.add_typer(dev.app, name="dev")
app.add_typer(dlq.app, name="dlq")
app.add_typer(example_programs.app, name="examples")
app.add_typer(plan.app, name="plan")
app.add_typer(savepoint.app, name="savepoint")
app.add_typer(state.app, name="state")
table_copy.register(tables.app)
table_maintain.register(tables.app)
table_release.register(tables.app)
app.add_typer(tables.app, name="table")
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.command("init", epilog=init.EXAMPLES)(init.init)
app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("explain", epilog=explain.EXAMPLES)(explain.explain)
app.command("produce", epilog=produce.EXAMPLES)(produce.produce)
app.command("consume", epilog=consume.EXAMPLES)(consume.consume)
app.command("lag", epilog=examples("streamrt lag shop", "streamrt lag shop --json | jq .total"))(groups.lag)
app.command("jars", epilog=jars.EXAMPLES)(jars.jars)
app.command("reset", epilog=reset.EXAMPLES)(reset.reset)
app.command("sql", epilog=sql.EXAMPLES)(sql.sql)
app.command("verify", epilog=verify.EXAMPLES)(verify.verify)
app.command("swap", epilog=swap.EXAMPLES)(swap.swap)
app.command("repartition", epilog=repartition.EXAMPLES)(repartition.repartition)
control.register(app)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("streamrt")
    except PackageNotFoundError:
        number = "(run from a source tree that is not installed)"
    echo(f"streamrt {number}")
    raise typer.Exit


@app.callback()
def _root_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Kafka-native stream processing for Python."""


def main() -> None:
    """Run the command line.

    An error of StreamRT ends the program with exit code 1 and one sentence on stderr, without a traceback. A second line
    leads to the paragraph of the error.

    Example:
        >>> main()  # doctest: +SKIP
    """
    try:
        app(prog_name="streamrt")
    except StreamRTError as error:
        echo(f"streamrt: {error}" + reference_of(error, "\n"), err=True)
        sys.exit(1)
