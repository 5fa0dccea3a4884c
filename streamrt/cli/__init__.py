"""The command `streamrt`."""

import sys
from typing import Annotated

import typer

from streamrt.cli import dev, jars, state
from streamrt.errors import StreamRTError

__all__ = ["app", "main"]

app = typer.Typer(
    name="streamrt",
    help="Kafka-native stream processing for Python.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(dev.app, name="dev")
app.add_typer(state.app, name="state")
app.command("jars")(jars.jars)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("streamrt")
    except PackageNotFoundError:
        number = "(run from a source tree that is not installed)"
    typer.echo(f"streamrt {number}")
    raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Kafka-native stream processing for Python."""


def main() -> None:
    """Run the command line.

    An error of StreamRT ends the program with exit code 1 and one sentence on stderr, without a traceback.

    Example:
        >>> main()  # doctest: +SKIP
    """
    try:
        app(prog_name="streamrt")
    except StreamRTError as error:
        typer.echo(f"streamrt: {error}", err=True)
        sys.exit(1)
