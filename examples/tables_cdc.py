"""Keeps a table of present customers and one of their history, from changes that arrive in any order.

The program creates the tables, and applies the changes in the topic `customer-changes` until it is stopped. With the argument
`changes`, it writes some changes there first.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/tables_cdc.py changes
"""

import os
import sys
from typing import Any

from streamrt import Application
from streamrt.tables import Catalog

TOPIC = "customer-changes"
CUSTOMERS = "id BIGINT, name STRING, city STRING, PRIMARY KEY (id)"
HISTORY = "id BIGINT, name STRING, city STRING, __START_AT BIGINT, __END_AT BIGINT, PRIMARY KEY (id, __START_AT)"
CHANGES: list[dict[str, Any]] = [
    {"op": "INSERT", "version": 1, "id": 124, "name": "Raul", "city": "Oaxaca"},
    {"op": "INSERT", "version": 1, "id": 123, "name": "Isabel", "city": "Monterrey"},
    {"op": "INSERT", "version": 2, "id": 125, "name": "Mercedes", "city": "Tijuana"},
    {"op": "DELETE", "version": 6, "id": 123},
    {"op": "UPDATE", "version": 6, "id": 125, "name": "Mercedes", "city": "Guadalajara"},
    # These happened before others that have arrived.
    {"op": "UPDATE", "version": 5, "id": 125, "name": "Mercedes", "city": "Mexicali"},
    {"op": "UPDATE", "version": 5, "id": 123, "name": "Isabel", "city": "Chihuahua"},
]


def tables(catalog: Catalog) -> None:
    """Create the tables."""
    catalog.create_database("demo", if_exists="ignore")
    catalog.create_table("demo.customers", CUSTOMERS, num_partitions=1, if_exists="ignore")
    catalog.create_table("demo.customer_history", HISTORY, num_partitions=1, if_exists="ignore")


def build(app: Application) -> None:
    """Apply the changes to both tables, and print those of present customers."""
    changes = app.dataframe(app.topic(TOPIC))
    deletes = changes["op"] == "DELETE"
    changes.to_table("demo.customer_history", sequence_by="version", apply_as_deletes=deletes, scd=2)
    customers = changes.to_table("demo.customers", sequence_by="version", apply_as_deletes=deletes)
    customers.to_stream("both").print()


if __name__ == "__main__":
    address = os.environ.get("STREAMRT_BROKER_ADDRESS", "localhost:9092")
    with Catalog(address) as catalog:
        tables(catalog)
    app = Application(address, consumer_group="customers-of-changes", auto_offset_reset="earliest")
    build(app)
    if sys.argv[1:] == ["changes"]:
        topic = app.topic(TOPIC)
        with app.get_producer() as producer:
            for change in CHANGES:
                message = topic.serialize(key=str(change["id"]), value=change)
                producer.produce(TOPIC, message.value, message.key)
    app.run()
