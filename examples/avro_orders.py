"""Reads orders in Avro, with dates and decimals, and writes invoices in Avro.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/avro_orders.py

Values are plain Avro by default. With SCHEMA_REGISTRY_URL=http://localhost:8081 both topics use a schema registry: each
order is read with the schema that it was written with, and the schema of invoices is registered.
"""

import os
from datetime import timedelta
from typing import Any

from streamrt import Application
from streamrt.serializers import AvroDeserializer, AvroSerializer, SchemaRegistryClientConfig

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
DATE = {"type": "int", "logicalType": "date"}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "day", "type": DATE},
        {"name": "price", "type": MONEY},
        {"name": "pieces", "type": "int", "default": 1},
    ],
}
INVOICE = {
    "type": "record",
    "name": "Invoice",
    "namespace": "shop",
    "fields": [
        {"name": "order", "type": "string"},
        {"name": "total", "type": MONEY},
        {"name": "due", "type": DATE},
    ],
}


def invoice(order: dict[str, Any]) -> dict[str, Any]:
    """Return the amount and the due date of an order."""
    return {"order": order["id"], "total": order["price"] * order["pieces"], "due": order["day"] + timedelta(days=14)}


def avro(schema: dict[str, Any], registry: SchemaRegistryClientConfig | None) -> dict[str, Any]:
    """Return the deserializer and serializer settings of a topic."""
    return {
        "value_deserializer": AvroDeserializer(schema, schema_registry_client_config=registry),
        "value_serializer": AvroSerializer(schema, schema_registry_client_config=registry),
    }


def build(app: Application, registry: SchemaRegistryClientConfig | None = None) -> None:
    """Add the dataframe of this example to an application."""
    orders = app.topic("avro-orders", **avro(ORDER, registry))
    invoices = app.topic("avro-invoices", **avro(INVOICE, registry))

    sdf = app.dataframe(orders)
    sdf = sdf[sdf["pieces"] > 0]
    sdf.apply(invoice).to_topic(invoices)


if __name__ == "__main__":
    app = Application(consumer_group="avro-orders", auto_offset_reset="earliest")
    url = os.environ.get("SCHEMA_REGISTRY_URL")
    build(app, SchemaRegistryClientConfig(url=url) if url else None)
    app.run()
