"""Output of commands: tables, JSON, and examples in the help of commands."""

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Annotated, Any

import typer

from streamrt.common.texts import json_readable, readable, readable_lines

__all__ = ["JsonOption", "echo", "examples", "note", "plural", "print_json", "print_table", "quiet_pipe", "time_text"]

_WIDE = 100_000
"""Columns of output that is not a terminal: nothing is cut there."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def examples(*lines: str) -> str:
    r"""Return the end of a help text, with one example in each line.

    Args:
        lines: the commands.

    Example:
        >>> examples("streamrt topics list")
        'Examples:\n\n$ streamrt topics list'
    """
    return "\n\n".join(["Examples:", *(f"$ {line}" for line in lines)])


def echo(text: str, *, err: bool = False, label: str = "") -> None:
    """Print a text, which may be of others: nothing in it controls a terminal.

    Args:
        text: the text, of one line or more.
        err: whether to print it on stderr.
        label: what the command itself puts in front of it, perhaps styled; styles are removed where no terminal is.
    """
    typer.echo(label + readable_lines(text), err=err)


def note(text: str) -> None:
    """Print a line on stderr."""
    echo(text, err=True)


def plural(count: int, noun: str) -> str:
    """Return a number with its noun.

    Example:
        >>> plural(1, "record"), plural(2, "record")
        ('1 record', '2 records')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    import orjson

    typer.echo(json_readable(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with a header. On a terminal it fits the width; elsewhere nothing is cut or coloured.

    Args:
        columns: the names of the columns. Numbers are aligned to the right.
        rows: the cells; None is an empty cell.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = any(isinstance(row[index], int) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        # As `Text`, because brackets in a str would be markup.
        table.add_row(*(Text("" if cell is None else readable(str(cell))) for cell in row))
    if sys.stdout.isatty():
        Console(highlight=False).print(table)
        return
    written = io.StringIO()
    Console(file=written, width=_WIDE, color_system=None, force_terminal=False, highlight=False).print(table)
    typer.echo("\n".join(line.rstrip() for line in written.getvalue().splitlines()))


def time_text(milliseconds: int) -> str:
    """Return a time as ISO 8601 in UTC.

    Args:
        milliseconds: milliseconds since the Unix epoch.

    Example:
        >>> time_text(1_700_000_000_123)
        '2023-11-14T22:13:20.123Z'
    """
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        # Kafka accepts timestamps of any year.
        return f"{milliseconds} ms"
    return f"{moment.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


@contextlib.contextmanager
def quiet_pipe() -> Iterator[None]:
    """End without an error if the reader of the output has gone, as `head` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout at its end, and would report the same error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
