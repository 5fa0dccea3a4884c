"""Completes orders: with their customer as of their time, and with the country, in a table of which each process has a copy.

The program drops its tables at its end, so it may run again. After a run that broke off, it says that the tables exist.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/tables_lookup.py
"""

import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from streamrt import Application
from streamrt.joins import TableField
from streamrt.tables import Catalog, Table

CLIENTS, COUNTRIES, ORDERS, COMPLETED = "demo.clients", "demo.countries", "demo.orders", "demo.completed"
DAY_MS = 24 * 60 * 60 * 1_000


def tables(catalog: Catalog) -> None:
    """Create the tables. Orders have the key of clients, and so their partitions."""
    catalog.create_database("demo", if_exists="ignore")
    catalog.create_table(
        CLIENTS, "client BIGINT, name STRING, at BIGINT, PRIMARY KEY (client)", time="at", num_partitions=1
    )
    catalog.create_table(COUNTRIES, "code STRING, country STRING, PRIMARY KEY (code)", num_partitions=1)
    order = "client BIGINT, number BIGINT, code STRING, at BIGINT"
    catalog.create_table(ORDERS, order, key=["client"], time="at", num_partitions=1)
    catalog.create_table(COMPLETED, f"{order}, name STRING, country STRING", key=["client"], num_partitions=1)


def build(app: Application) -> None:
    """Complete orders."""
    clients = app.table(CLIENTS, keep=timedelta(days=7))
    countries = app.table(COUNTRIES, everywhere=True)
    orders = app.dataframe(ORDERS).join_asof(clients, how="left", on_merge="keep-left")
    orders = orders.join_lookup(countries, {"country": TableField("country")}, on="code")
    orders.to_table(COMPLETED)


def write(open_table: Callable[[str], Table]) -> None:
    """Write rows: a client who changes its name, and orders from before and after it."""
    open_table(COUNTRIES).upsert([["FR", "France"], ["PT", "Portugal"]])
    open_table(CLIENTS).upsert([[1, "Ann", DAY_MS], [1, "Anna", 3 * DAY_MS]])
    orders = [
        [1, 100, "FR", DAY_MS - 1],
        [1, 101, "PT", 2 * DAY_MS],
        [1, 102, "XX", 3 * DAY_MS],
        [2, 103, "FR", 4 * DAY_MS],
    ]
    with open_table(ORDERS).writer() as writer:
        writer.append_rows(orders)


def completed(table: Table) -> dict[str, dict[str, Any]]:
    """Return the completed orders by their numbers."""
    return {f"order {row.pop('number')}": row for row in table.scan(["number", "name", "country"]).rows()}


if __name__ == "__main__":
    address = os.environ.get("STREAMRT_BROKER_ADDRESS", "localhost:9092")
    with Catalog(address) as catalog, tempfile.TemporaryDirectory() as directory:
        tables(catalog)
        write(catalog.table)
        app = Application(
            address,
            consumer_group="demo-lookup",
            auto_offset_reset="earliest",
            catalog=catalog,
            state_dir=directory,
            processing_mode="resident",
            spark_master="processes[1]",
        )
        build(app)
        app.run(until="end")
        for what, found in completed(catalog.table(COMPLETED)).items():
            print(f"{what}: {found!r}")
        for name in (CLIENTS, COUNTRIES, ORDERS, COMPLETED):
            catalog.drop_table(name, delete_data=True)
