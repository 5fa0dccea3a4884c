"""`streamrt table copy`: an application that appends the rows of one table to another."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, TimeoutOption, connection_from
from streamrt.cli.output import examples
from streamrt.cli.tables.catalog import CatalogOption, open_catalog
from streamrt.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamrt.app import Application
    from streamrt.tables import Table

__all__ = ["define_copy", "register"]


def define_copy(app: "Application", source: "Table", target: "Table", columns: "Sequence[str]" = ()) -> None:
    """Let an application append the rows of one table to another.

    Args:
        app: the application.
        source: the table to read.
        target: the table to append to.
        columns: the columns to copy; all by default.

    Raises:
        SchemaError: if one of the tables does not have a column.
        InvalidOperationError: if one cannot be read, or not be written.
    """
    chosen = list(columns or source.schema.names)
    for table, advice in ((source, ""), (target, ": name the columns to copy with --column")):
        lacking = [name for name in chosen if name not in table.schema.names]
        if lacking:
            raise SchemaError(f"table {table.name} has no column {lacking[0]!r}{advice}")
    app.dataframe(source)[chosen].to_table(target)


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The table to read.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The table to append to.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    columns: Annotated[
        list[str] | None, typer.Option("--column", metavar="COLUMN", help="Column to copy; may be repeated.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Consumer group; by default copy-FROM-TO. It continues its copy."),
    ] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="Append each row once, in transactions.")
    ] = False,
    to_end: Annotated[
        bool, typer.Option("--end", help="End when all rows are copied, instead of waiting for more.")
    ] = False,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="Directory of the application.")
    ] = None,
) -> None:
    """Append the rows of a table to another one, until Ctrl+C, or until its end."""
    from streamrt.app import Application

    with open_catalog(broker, config, timeout, catalog, need_broker=True) as opened:
        app = Application(
            connection_from(broker, config),
            consumer_group=group or f"copy-{source}-{target}",
            auto_offset_reset="earliest",
            processing_guarantee="exactly-once" if exactly_once else "at-least-once",
            state_dir=state_dir,
            catalog=opened,
        )
        define_copy(app, opened.table(source), opened.table(target), columns or ())
        app.run(until="end" if to_end else None, collect=False)


def register(app: typer.Typer) -> None:
    """Add the command to `streamrt table`."""
    app.command(
        "copy",
        epilog=examples(
            "streamrt table copy shop.orders archive.orders --end",
            "streamrt table copy city.rides shop.rides --column id --column km --exactly-once",
        ),
    )(copy)
