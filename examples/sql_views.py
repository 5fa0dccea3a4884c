"""Views in SQL follow which vendor sells each part at the lowest price, and a proof compares them with their query.

Vendors change their prices and give parts up. Each change moves the views at once, and they say what the query would say over
all rows: `verify` runs it as a batch in DuckDB. The program drops its tables at its end, so it may run again. After one that
broke off, it says that the tables exist.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/sql_views.py
"""

import os
import tempfile
from collections.abc import Callable
from typing import Any

from streamrt import Application
from streamrt.tables import Catalog, Table

VENDORS, PARTS, PRICES = "supply.vendors", "supply.parts", "supply.prices"
LOWEST, PREFERRED = "supply.lowest_prices", "supply.preferred_vendors"

PROGRAM = """
CREATE MATERIALIZED VIEW supply.preferred_vendors AS
SELECT part.id AS part_id, part.name AS part, vendor.id AS vendor_id, vendor.name AS vendor, price.price
FROM supply.prices price
    JOIN supply.lowest_prices lowest ON price.part = lowest.part AND price.price = lowest.price
    JOIN supply.parts part ON part.id = price.part
    JOIN supply.vendors vendor ON vendor.id = price.vendor;

CREATE MATERIALIZED VIEW supply.lowest_prices AS
SELECT part, min(price) AS price FROM supply.prices GROUP BY part;
"""
"""The order of statements is free: the first view reads the second one."""


def tables(catalog: Catalog) -> None:
    """Create the tables."""
    catalog.create_database("supply", if_exists="ignore")
    catalog.create_table(VENDORS, "id BIGINT, name STRING, address STRING, PRIMARY KEY (id)", num_partitions=2)
    catalog.create_table(PARTS, "id BIGINT, name STRING, PRIMARY KEY (id)", num_partitions=2)
    catalog.create_table(
        PRICES, "part BIGINT, vendor BIGINT, price DECIMAL(10, 2), PRIMARY KEY (part, vendor)", num_partitions=2
    )


def build(app: Application) -> None:
    """Declare the views."""
    app.sql(PROGRAM)


def change(open_table: Callable[[str], Table], wait: Callable[[], object]) -> dict[str, Any]:
    """Write and change rows; return the rows of the views after each step.

    Args:
        open_table: opens a table.
        wait: returns when everything that was written is processed.
    """
    open_table(VENDORS).upsert(
        [
            {"id": 1, "name": "Gravitech Dynamics", "address": "222 Graviton Lane"},
            {"id": 2, "name": "HyperDrive Innovations", "address": "456 Warp Way"},
            {"id": 3, "name": "DarkMatter Devices", "address": "333 Singularity Street"},
        ]
    )
    open_table(PARTS).upsert([{"id": 1, "name": "Flux Capacitor"}, {"id": 2, "name": "Warp Core"}])
    prices = open_table(PRICES)
    prices.upsert(
        [
            {"part": 1, "vendor": 2, "price": "10000"},
            {"part": 2, "vendor": 1, "price": "15000"},
            {"part": 2, "vendor": 3, "price": "9000"},
        ]
    )
    shown = {"first": preferred(open_table, wait)}
    # Another vendor is cheaper, then just as cheap, and then one does not sell the part any more.
    prices.upsert({"part": 1, "vendor": 3, "price": "9500"})
    shown["cheaper"] = preferred(open_table, wait)
    prices.upsert({"part": 2, "vendor": 1, "price": "9000"})
    shown["as cheap"] = preferred(open_table, wait)
    prices.delete({"part": 2, "vendor": 3})
    shown["given up"] = preferred(open_table, wait)
    return shown


def preferred(open_table: Callable[[str], Table], wait: Callable[[], object]) -> list[tuple[str, str, str]]:
    """Return part, vendor and price of the preferred vendors."""
    wait()
    rows = open_table(PREFERRED).scan(["part", "vendor", "price"]).rows()
    return sorted((row["part"], row["vendor"], str(row["price"])) for row in rows)


if __name__ == "__main__":
    address = os.environ.get("STREAMRT_BROKER_ADDRESS", "localhost:9092")
    with Catalog(address) as catalog, tempfile.TemporaryDirectory() as directory:
        tables(catalog)
        app = Application(
            address,
            consumer_group="supply-views",
            catalog=catalog,
            state_dir=directory,
            processing_guarantee="exactly-once",
            processing_mode="resident",
            spark_master="processes[1]",
        )
        build(app)
        app.start()
        for what, rows in change(catalog.table, lambda: app.wait_for_idle(1.0)).items():
            print(f"{what}: {rows!r}")
        proof = app.verify(PREFERRED)
        print(f"proof: {proof.rows} rows, {'equal' if proof.equal else proof}")
        app.stop(wait=True)
        for name in (PREFERRED, LOWEST, PRICES, PARTS, VENDORS):
            catalog.drop_table(name, delete_data=True)
