"""`streamrt table scan`, `tail` and `schema detect`: rows of tables."""

import contextlib
import enum
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, TimeoutOption
from streamrt.cli.output import JsonOption, echo, examples, note, plural, print_json, quiet_pipe
from streamrt.cli.records.record_values import parse_time_ms
from streamrt.cli.tables.catalog import CatalogOption, open_catalog
from streamrt.errors import ConfigurationError

if TYPE_CHECKING:
    from streamrt.tables import Table
    from streamrt.tables.access.positions import Start

__all__ = ["place_of", "register"]

_SHOWN = 100
"""Rows of `scan` in the format table, unless --limit says otherwise."""

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="DATABASE.TABLE, or the name of a table in the database 'default'.")
]
ColumnsOption = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="Columns, in order, separated by commas; by default all.")
]
PartitionOption = Annotated[list[int] | None, typer.Option(min=0, help="Only this partition; may be repeated.")]
MetadataOption = Annotated[
    bool, typer.Option("--metadata", help="Also print _change_type, _offset, _timestamp and _partition.")
]
SkipOption = Annotated[bool, typer.Option("--skip-errors", help="Leave out records that are not rows, and count them.")]
_PLACES = (
    "earliest, latest, an offset, -N for N offsets before the end, a time in ISO 8601 (UTC without zone), or a token"
)


class ScanFormat(str, enum.Enum):
    """How `scan` prints rows."""

    table = "table"
    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


class TailChanges(str, enum.Enum):
    """What `tail` prints of tables with a primary key."""

    log = "log"
    full = "full"


class TailFormat(str, enum.Enum):
    """How `tail` prints rows."""

    jsonl = "jsonl"
    csv = "csv"


def scan(
    table: TableArgument,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    columns: ColumnsOption = None,
    start: Annotated[str, typer.Option("--from", metavar="START", help=f"{_PLACES}.")] = "earliest",
    until: Annotated[str, typer.Option(metavar="END", help="The same; latest is the present end.")] = "latest",
    after: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Wait until all rows up to a token can be read."),
    ] = None,
    partition: PartitionOption = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Most rows.")] = None,
    scan_format: Annotated[
        ScanFormat,
        typer.Option("--format", help=f"How rows are printed. table shows {_SHOWN}, unless --limit is given."),
    ] = ScanFormat.table,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write, instead of stdout.")] = None,
    changes: Annotated[
        bool,
        typer.Option(
            "--changes", help="Of a table with a primary key, print upserts and deletes; and the column _change_type."
        ),
    ] = False,
    metadata: MetadataOption = False,
    skip_errors: SkipOption = False,
) -> None:
    """Print the rows of a table, from its beginning to its present end; the current ones, if it has a primary key."""
    from streamrt.cli.tables.row_output import open_output, print_rows, write_rows

    if scan_format is ScanFormat.parquet and output is None:
        raise typer.BadParameter("parquet needs a file: pass --output FILE", param_hint="--format")
    most = _SHOWN + 1 if scan_format is ScanFormat.table and limit is None else limit
    with quiet_pipe(), open_catalog(broker, config, timeout, catalog, need_broker=True) as opened:
        chosen = opened.table(table)
        found = chosen.scan(
            column_names(columns),
            start=place_of(chosen, start, partition, "--from"),
            until=place_of(chosen, until, partition, "--until"),
            partitions=partition,
            limit=most,
            changes=changes,
            metadata=metadata,
            on_error="skip" if skip_errors else "fail",
            after=after,
            timeout=timeout,
        )
        if scan_format is ScanFormat.parquet and output is not None:
            try:
                written = found.to_parquet(output)
            except OSError as error:
                raise ConfigurationError(f"{output} cannot be written: {error.strerror or error}") from None
            note(f"wrote {plural(written, 'row')} to {output}")
        else:
            batches = (each.batch for each in found.batches())
            with open_output(output) as file:
                if scan_format is ScanFormat.table:
                    shown = print_rows(file, found.arrow_schema.names, batches, _SHOWN if limit is None else None)
                    if limit is None and shown > _SHOWN:
                        note(f"these are {_SHOWN} rows, and there are more: --limit shows more of them")
                else:
                    write_rows(file, scan_format.value, found.arrow_schema.names, batches)
        if found.skipped:
            note(f"left out {plural(found.skipped, 'record')} that are not rows")


def tail(
    table: TableArgument,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    columns: ColumnsOption = None,
    start: Annotated[str, typer.Option("--from", metavar="START", help=f"{_PLACES}.")] = "latest",
    partition: PartitionOption = None,
    most: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after this many rows.")] = None,
    tail_format: Annotated[TailFormat, typer.Option("--format", help="How rows are printed.")] = TailFormat.jsonl,
    changes: Annotated[
        TailChanges,
        typer.Option(
            help="Of a table with a primary key: upserts and deletes, or full changes, with the rows before them."
        ),
    ] = TailChanges.log,
    metadata: MetadataOption = False,
    skip_errors: SkipOption = False,
) -> None:
    """Print rows of a table as they are written, until Ctrl+C. It commits nothing and joins no group.

    Rows of a table with a primary key have the column _change_type, as with --metadata.
    """
    from streamrt.cli.tables.row_output import following, open_output, write_rows
    from streamrt.tables.rows.decoding import POSITION_COLUMNS

    with (
        contextlib.suppress(KeyboardInterrupt),
        quiet_pipe(),
        open_catalog(broker, config, timeout, catalog, need_broker=True) as opened,
    ):
        chosen = opened.table(table)
        with chosen.subscribe(
            column_names(columns),
            start=place_of(chosen, start, partition, "--from"),
            partitions=partition,
            changes=changes.value,
            metadata=metadata or chosen.kind == "primary-key",
            on_error="skip" if skip_errors else "fail",
        ) as stream:
            names = stream.arrow_schema.names
            if chosen.kind == "primary-key" and not metadata:
                names = names[: -len(POSITION_COLUMNS)]
            batches = (batch.select(names) for batch in following(stream, most))
            with open_output(None) as file:
                write_rows(file, tail_format.value, names, batches)
            if stream.skipped:
                note(f"left out {plural(stream.skipped, 'record')} that are not rows")


def detect(
    table: TableArgument,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most records.")] = 10,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Wait so long for the first record.")] = 60.0,
    types: Annotated[bool, typer.Option("--types", help="Infer types; otherwise all columns are STRING.")] = False,
    start: Annotated[
        str | None, typer.Option("--from", metavar="START", help=f"{_PLACES}; by default, the last records are taken.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Give the table the schema that was found.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Look at records of a table's topic, and print a schema that fits them."""
    with open_catalog(broker, config, timeout, catalog, need_broker=True) as opened:
        chosen = opened.table(table)
        place = None if start is None else place_of(chosen, start, None, "--from")
        found = chosen.detect_schema(limit, wait, types, place)
        if apply and found.schema is not None:
            chosen.set_schema(found.schema)
    if as_json:
        columns = None if found.schema is None else found.schema.columns
        more = {"new_columns": found.new_columns, "missing_columns": found.missing_columns}
        rest = {"records": len(found.rows), "skipped": found.skipped, "hint": found.hint}
        print_json({"columns": columns, **more, **rest})
    elif found.schema is not None:
        echo(str(found.schema))
        for what, names in (("new", found.new_columns), ("missing", found.missing_columns)):
            if names:
                note(f"{what} columns: {', '.join(names)}")
    if found.skipped:
        note(f"{plural(found.skipped, 'record')} of {found.skipped + len(found.rows)} did not count: {found.hint}")
    if found.schema is None:
        if not found.skipped:
            note(f"no record came within {wait:g} s")
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the commands to `streamrt table`.

    Args:
        app: the group.
    """
    app.command(
        "scan",
        epilog=examples(
            "streamrt table scan shop.orders --columns id,amount --limit 20",
            "streamrt table scan shop.orders --from 2026-11-23 --format csv > orders.csv",
            "streamrt table scan shop.orders --format parquet --output orders.parquet",
        ),
    )(scan)
    app.command(
        "tail",
        epilog=examples(
            "streamrt table tail shop.orders",
            "streamrt table tail shop.orders --from -10 --max 10 --metadata",
            "streamrt table tail shop.customers --changes full",
        ),
    )(tail)
    schema = typer.Typer(no_args_is_help=True, help="Schemas of tables.")
    schema.callback()(_schema_group)
    schema.command(
        "detect",
        epilog=examples(
            "streamrt table schema detect shop.orders --types", "streamrt table schema detect shop.orders --apply"
        ),
    )(detect)
    app.add_typer(schema, name="schema")


def _schema_group() -> None:
    """Find the schema of a table."""


def column_names(columns: str | None) -> list[str] | None:
    """Return the names in the option `--columns`; None without it.

    Args:
        columns: the option.
    """
    if columns is None:
        return None
    names = [name.strip() for name in columns.split(",")]
    if not all(names):
        raise typer.BadParameter("give names, separated by commas", param_hint="--columns")
    return names


def place_of(table: "Table", text: str, partitions: list[int] | None, option: str) -> "Start":
    """Return a place as `Table.scan` takes it.

    Args:
        table: the table.
        text: what was given.
        partitions: the partitions that were chosen; None means all, those that are added later included.
        option: the option, for errors.
    """
    from datetime import datetime, timedelta, timezone

    from streamrt.kafka.completion_token import Offsets

    if text in ("earliest", "latest") or text.lstrip().startswith("{"):
        return text
    if re.fullmatch("-?[0-9]{1,18}", text):
        low = table.offsets("earliest", partitions)
        high = table.offsets("latest", partitions)
        number = int(text)
        if text.startswith("-"):
            return Offsets({each: max(offset, high[each] + number) for each, offset in low.items()}, low.ids)
        return Offsets(dict.fromkeys(low, number), low.ids)
    milliseconds = parse_time_ms(text)
    if milliseconds is None:
        raise typer.BadParameter(f"{text!r} is not {_PLACES}", param_hint=option)
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds)
