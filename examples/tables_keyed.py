"""Writes rows by key, finds them, keeps a copy of them on disk, and follows their changes, without an application.

The program drops its table at its end, so it may run again. After a run that broke off, it says that the table exists.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/tables_keyed.py
"""

import os
import tempfile
from typing import Any

from streamrt.state import RocksDBStore
from streamrt.tables import Catalog, Table

COLUMNS = "country STRING, id BIGINT, name STRING, visits INT, PRIMARY KEY (country, id)"


def lookups(customers: Table) -> dict[str, Any]:
    """Write rows, and find them by their keys."""
    customers.upsert([["FR", 1, "Alice", 3], ["FR", 2, "Bob", 1], ["DE", 1, "Carol", 8]])
    token = customers.upsert({"country": "FR", "id": 1, "name": "Alice", "visits": 4})
    return {
        # The token makes sure that the lookup sees what was written.
        "alice": customers.get({"id": 1, "country": "FR"}, after=token),
        "several": customers.get_many([("DE", 1), ("FR", 9)]),
        "french": sorted(row["name"] for row in customers.prefix({"country": "FR"}, after=token)),
        "rows": customers.scan().count(),
    }


def replica(customers: Table, directory: str) -> dict[str, Any]:
    """Keep a copy on disk; the second one goes on where the first one ended."""
    with customers.replica(store=RocksDBStore, directory=directory) as copy:
        first = len(list(copy.scan()))
        token = customers.delete([("FR", 2)])
        gone = copy.get(("FR", 2), after=token)
    with customers.replica(store=RocksDBStore, directory=directory) as copy:
        return {"copied": first, "gone": gone, "names": sorted(row["name"] for row in copy.scan(["name"]))}


def changes(customers: Table) -> dict[str, Any]:
    """Take a snapshot, and follow what changes from there on, with the rows of before."""
    rows, offsets = customers.snapshot(["name"])
    with customers.subscribe(["name", "visits"], start=offsets, changes="full") as stream:
        customers.upsert([["DE", 1, "Carol", 9], ["IT", 1, "Dino", 1]])
        end = customers.delete([("FR", 1)])
        found = []
        while not stream.position.covers(end):
            found += [(each.change_type.short, each.row["name"], each.row["visits"]) for each in stream.poll(10.0)]
    return {"snapshot": sorted(rows["name"].to_pylist()), "changes": found}


def run(catalog: Catalog) -> dict[str, Any]:
    """Return what was found."""
    catalog.create_database("demo", if_exists="ignore")
    customers = catalog.create_table("demo.customers", COLUMNS, num_partitions=1)
    with tempfile.TemporaryDirectory() as directory:
        return {**lookups(customers), **replica(customers, directory), **changes(customers)}


if __name__ == "__main__":
    with Catalog(os.environ.get("STREAMRT_BROKER_ADDRESS", "localhost:9092")) as catalog:
        for what, found in run(catalog).items():
            print(f"{what}: {found!r}")
        catalog.drop_table("demo.customers", delete_data=True)
