"""`streamrt table write` and `delete`: rows into tables, and out of them by key."""

import enum
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, TimeoutOption
from streamrt.cli.interrupts import UntilInterrupted
from streamrt.cli.output import JsonOption, echo, examples, plural, print_json
from streamrt.cli.tables.catalog import CatalogOption, open_catalog
from streamrt.cli.tables.table_rows import column_names
from streamrt.errors import ConfigurationError, SchemaMismatchError, SerializationError

if TYPE_CHECKING:
    from streamrt.tables import Table, TableWriter

__all__ = ["register"]

_INTERRUPTED = 130

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="DATABASE.TABLE, or the name of a table in the database 'default'.")
]
FileOption = Annotated[
    Path | None, typer.Option("--file", exists=True, dir_okay=False, help="File to read instead of stdin.")
]


class RowsFormat(str, enum.Enum):
    """Formats that `write` reads."""

    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


def write(
    table: TableArgument,
    rows: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ROW]...", help="JSON objects; without them, --file or stdin is read."),
    ] = None,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    file: FileOption = None,
    rows_format: Annotated[
        RowsFormat,
        typer.Option(
            "--format",
            help="jsonl: each line is an object. csv: the first line names columns, and empty fields are null. parquet needs "
            "--file.",
        ),
    ] = RowsFormat.jsonl,
    upsert: Annotated[
        bool, typer.Option("--upsert", help="Refuse a table without a primary key, where rows would be appended.")
    ] = False,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="The columns that rows give, separated by commas; by default all. Others stay as they are in a maintained "
            "table, and get their default or null in a new row, or in a table without a primary key.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write rows to a table, and print how many were written.

    Rows of a table with a primary key replace those with their keys; other tables append them. A row that does not fit ends
    it; the rows before it are written.
    """
    from streamrt.cli.tables.row_input import read_rows

    if rows and (file is not None or rows_format is not RowsFormat.jsonl):
        raise typer.BadParameter("pass rows as arguments, which are JSON, or in a file, not both", param_hint="--file")
    if rows_format is RowsFormat.parquet and file is None:
        raise typer.BadParameter("parquet needs a file: pass --file FILE", param_hint="--format")
    names = column_names(columns)
    with open_catalog(broker, config, timeout, catalog, need_broker=True) as opened:
        chosen = opened.table(table)
        if upsert and chosen.kind == "log":
            raise ConfigurationError(
                f"table {chosen.name} has no primary key, so its rows are appended: leave out --upsert"
            )
        with chosen.writer(columns=names) as writer:
            add = writer.upsert if chosen.kind == "primary-key" else writer.append
            given = read_rows(chosen.schema, rows, file, rows_format.value)
            _write_each(chosen, writer, add, given, ("row", "wrote", "to", "written"), timeout, as_json=as_json)


def delete(
    table: TableArgument,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY]...",
            help="Primary keys: the value of the one key column; or, as JSON, an array with the values of all, in the order "
            "of the primary key, or an object with them. Without keys, --file or stdin is read, with one in each line.",
        ),
    ] = None,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete the rows of a table with some primary keys, and print how many keys were given.

    A key without a row changes nothing. A key that does not fit ends it; the rows of keys before it are deleted.
    """
    from streamrt.cli.tables.row_input import read_keys

    if keys and file is not None:
        raise typer.BadParameter("pass keys as arguments, or in a file, not both", param_hint="--file")
    with open_catalog(broker, config, timeout, catalog, need_broker=True) as opened:
        chosen = opened.table(table)
        if chosen.kind == "log":
            raise ConfigurationError(f"table {chosen.name} has no primary key, so its rows are not deleted by key")
        with chosen.writer() as writer:
            given = read_keys(chosen.schema, keys, file)
            _write_each(
                chosen, writer, writer.delete, given, ("key", "deleted", "of", "deleted"), timeout, as_json=as_json
            )


def _write_each(
    table: "Table",
    writer: "TableWriter",
    add: Callable[[Any], object],
    items: Iterable[Any],
    words: tuple[str, str, str, str],
    timeout: float,
    *,
    as_json: bool,
) -> None:
    """Write what comes until it ends or Ctrl+C, and print how many were written."""
    thing, did, preposition, field = words
    written = 0
    given = UntilInterrupted(items)
    try:
        for each in given:
            try:
                add(each)
            except (SchemaMismatchError, SerializationError) as error:
                raise SchemaMismatchError(
                    f"{thing} {written + 1} does not fit table {table.name}: {error}; earlier ones were {field}"
                ) from None
            written += 1
    finally:
        # Also after an error: what was accepted is written.
        token = writer.flush(timeout)
        if written and not as_json:
            echo(f"{did} {plural(written, thing)} {preposition} {table.name}")
    if as_json:
        print_json({"table": table.name, field: written, "token": str(token)})
    elif not written:
        echo(f"{did} 0 {thing}s {preposition} {table.name}")
    if given.interrupted:
        raise typer.Exit(_INTERRUPTED)


def register(app: typer.Typer) -> None:
    """Add the commands to `streamrt table`.

    Args:
        app: the group.
    """
    app.command(
        "write",
        epilog=examples(
            """streamrt table write shop.orders '{"id": 1, "customer": "ann"}'""",
            "streamrt table write shop.orders --file orders.csv --format csv",
            "streamrt table scan shop.orders --format jsonl | streamrt table write shop.copies",
            """streamrt table write shop.customers --upsert '{"id": 1, "name": "Ann"}'""",
            """streamrt table write shop.customers --columns id,city '{"id": 1, "city": "Paris"}'""",
        ),
    )(write)
    app.command(
        "delete",
        epilog=examples(
            "streamrt table delete shop.customers 1 2",
            """streamrt table delete shop.rates '["FR", "2026-11-23"]' '{"country": "DE", "day": "2026-11-23"}'""",
            "streamrt table delete shop.customers --file gone.txt",
        ),
    )(delete)
