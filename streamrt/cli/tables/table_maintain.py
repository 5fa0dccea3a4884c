"""`streamrt table maintain`: an application that merges the requests of maintained tables, and does nothing else."""

from typing import Annotated

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, TimeoutOption, connection_from
from streamrt.cli.output import examples
from streamrt.cli.programs.run_settings import chosen_settings, in_environment, parse_flags, require_effect
from streamrt.cli.tables.catalog import CatalogOption, open_catalog

__all__ = ["register"]


def maintain(
    tables: Annotated[list[str], typer.Argument(metavar="TABLE...", help="The tables to maintain.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP", help="Consumer group, which owns the tables; for one table, maintain-TABLE by default."
        ),
    ] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="Count each request once, also after a failure.")
    ] = False,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the application; may be repeated."),
    ] = None,
    control: Annotated[
        str | None,
        typer.Option("--control", metavar="[HOST:]PORT", help="The same as --set control=PORT: the control server."),
    ] = None,
    to_end: Annotated[
        bool, typer.Option("--end", help="End when all requests are merged, instead of waiting for more.")
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Start again after failures that may pass.")] = False,
) -> None:
    """Merge the requests of maintained tables into their rows, until Ctrl+C.

    Several copies share the partitions. A program with app.maintain() does the
    same, and can use the rows. A table has one of the two.
    """
    from streamrt.app import Application
    from streamrt.runtime.driver.life.restart import RestartPolicy

    if group is None and len(tables) > 1:
        raise typer.BadParameter("name the consumer group of several tables, which stays theirs", param_hint="--group")
    guarantee = "exactly-once" if exactly_once else None
    settings = chosen_settings(
        parse_flags(
            sets or (),
            {"processing_guarantee": ("--exactly-once", guarantee), "control": ("--control", control)},
        ),
        {},
        {},
    )
    with (
        in_environment({each.variable: each.text for each in settings}),
        open_catalog(broker, config, timeout, catalog, need_broker=True) as opened,
    ):
        app = Application(
            connection_from(broker, config), consumer_group=group or f"maintain-{tables[0]}", catalog=opened
        )
        require_effect(app, settings)
        for table in tables:
            app.maintain(table)
        app.run(until="end" if to_end else None, collect=False, restart=RestartPolicy() if restart else None)


def register(app: typer.Typer) -> None:
    """Add the command to `streamrt table`."""
    app.command(
        "maintain",
        epilog=examples(
            "streamrt table maintain shop.customers",
            "streamrt table maintain shop.totals --exactly-once --set state_dir=/var/lib/totals --control 7070",
            "streamrt table maintain shop.customers shop.prices --group shop-tables --restart",
        ),
    )(maintain)
