"""Two services write different columns of the same rows, and totals add up what they get: one application merges all of it.

The program drops its tables at its end, so it may run again. After a run that broke off, it says that the tables exist.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/tables_maintained.py
"""

import os
import tempfile
from collections.abc import Callable
from typing import Any

from streamrt import Application
from streamrt.tables import Aggregate, Catalog, Table

CUSTOMERS, TOTALS = "demo.people", "demo.totals"


def tables(catalog: Catalog) -> None:
    """Create the tables."""
    catalog.create_database("demo", if_exists="ignore")
    catalog.create_table(
        CUSTOMERS, "id BIGINT, name STRING, city STRING, PRIMARY KEY (id)", num_partitions=1, maintained=True
    )
    catalog.create_table(
        TOTALS,
        "customer BIGINT, total BIGINT, orders BIGINT, PRIMARY KEY (customer)",
        num_partitions=1,
        merge=Aggregate(total="sum", orders="sum"),
    )


def build(app: Application) -> None:
    """Merge what the services write."""
    app.maintain(CUSTOMERS)
    app.maintain(TOTALS)


def write(open_table: Callable[[str], Table]) -> dict[str, Any]:
    """Write as three services do; return the rows."""
    customers, totals = open_table(CUSTOMERS), open_table(TOTALS)
    with customers.writer(columns=["id", "name"]) as accounts, customers.writer(columns=["id", "city"]) as shipping:
        accounts.upsert({"id": 1, "name": "Ann"})
        shipping.upsert({"id": 1, "city": "Lyon"})
        accounts.flush()
        moved = shipping.upsert({"id": 1, "city": "Paris"}).token
    with totals.writer() as orders:
        for amount in (30, 12):
            orders.upsert({"customer": 1, "total": amount, "orders": 1})
        ordered = orders.flush()
    # A token makes sure that the lookup sees what was written.
    return {"customer": customers.get(1, after=moved), "totals": totals.get(1, after=ordered)}


if __name__ == "__main__":
    address = os.environ.get("STREAMRT_BROKER_ADDRESS", "localhost:9092")
    with Catalog(address) as catalog, tempfile.TemporaryDirectory() as directory:
        tables(catalog)
        app = Application(
            address,
            consumer_group="demo-maintainer",
            catalog=catalog,
            state_dir=directory,
            processing_mode="resident",
            spark_master="processes[1]",
        )
        build(app)
        app.start()
        for what, found in write(catalog.table).items():
            print(f"{what}: {found!r}")
        app.stop(wait=True)
        for name in (CUSTOMERS, TOTALS):
            catalog.drop_table(name, delete_data=True)
