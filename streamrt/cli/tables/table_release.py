"""`streamrt table release`: lets another application maintain a table."""

from typing import Annotated

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, TimeoutOption
from streamrt.cli.output import JsonOption, echo, examples, print_json
from streamrt.cli.tables.catalog import CatalogOption, open_catalog

__all__ = ["register"]


def release(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let another application maintain a table, after the last one has stopped.

    It continues behind the requests that are merged, with the rows of the table.
    """
    with open_catalog(broker, config, timeout, catalog) as opened:
        group = opened.release_table(table)
    if as_json:
        print_json({"table": table, "group": group})
    elif group is None:
        echo(f"no application maintains {table}")
    else:
        echo(f"consumer group {group} does not maintain {table} any more")


def register(app: typer.Typer) -> None:
    """Add the command to `streamrt table`."""
    app.command("release", epilog=examples("streamrt table release shop.customers"))(release)
