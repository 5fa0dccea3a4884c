"""`streamrt table get`: rows of tables by their keys."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, TimeoutOption
from streamrt.cli.output import examples, note, quiet_pipe
from streamrt.cli.tables.catalog import CatalogOption, open_catalog
from streamrt.cli.tables.table_rows import ColumnsOption, TableArgument, column_names
from streamrt.errors import SchemaMismatchError

__all__ = ["register"]

_MISSING = 1


class GetFormat(str, enum.Enum):
    """How `get` prints rows."""

    jsonl = "jsonl"
    csv = "csv"
    table = "table"


def get(
    table: TableArgument,
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY...",
            help="Primary keys: the value of the one key column; or, as JSON, an array with the values of all, in the order "
            "of the primary key, or an object with them.",
        ),
    ],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    columns: ColumnsOption = None,
    prefix: Annotated[
        bool, typer.Option("--prefix", help="Keys have the first columns only: print all rows that begin with them.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Most rows of each prefix.")] = None,
    after: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Wait until all rows up to a token can be read.")
    ] = None,
    get_format: Annotated[GetFormat, typer.Option("--format", help="How rows are printed.")] = GetFormat.jsonl,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write, instead of stdout.")] = None,
) -> None:
    """Print the rows of a table with some primary keys, in their order. If a key has no row, the exit code is 1.

    Kafka has no index: a key is looked for in all records of its partition, and a prefix in all of the table.
    """
    import pyarrow as pa

    from streamrt.cli.tables.row_input import parse_key
    from streamrt.cli.tables.row_output import open_output, print_rows, write_rows

    if limit is not None and not prefix:
        raise typer.BadParameter("it is for prefixes: pass --prefix, too", param_hint="--limit")
    with quiet_pipe(), open_catalog(broker, config, timeout, catalog, need_broker=True) as opened:
        chosen = opened.table(table)
        schema = chosen.schema if columns is None else chosen.schema.project(column_names(columns) or [])
        given = []
        for number, text in enumerate(keys, 1):
            try:
                given.append(parse_key(chosen.schema, text))
            except SchemaMismatchError as error:
                raise SchemaMismatchError(f"argument {number}: {error}") from None
        if prefix:
            found = [row for key in given for row in chosen.prefix(key, limit=limit, after=after, timeout=timeout)]
            missing = []
        else:
            rows = chosen.get_many(given, after=after, timeout=timeout)
            found = [row for row in rows if row is not None]
            missing = [text for text, row in zip(keys, rows, strict=True) if row is None]
        shown = [{name: row[name] for name in schema.names} for row in found]
        batches = [pa.RecordBatch.from_pylist(shown, schema.arrow)]
        with open_output(output) as file:
            if get_format is GetFormat.table:
                print_rows(file, schema.names, batches, None)
            else:
                write_rows(file, get_format.value, schema.names, batches)
        for text in missing:
            note(f"there is no row with the key {text}")
        if missing:
            raise typer.Exit(_MISSING)


def register(app: typer.Typer) -> None:
    """Add the command to `streamrt table`.

    Args:
        app: the group.
    """
    app.command(
        "get",
        epilog=examples(
            "streamrt table get shop.customers 7 8",
            """streamrt table get shop.rates '["FR", "2026-11-23"]' --format table""",
            """streamrt table get shop.rates '["FR"]' --prefix --limit 10""",
        ),
    )(get)
