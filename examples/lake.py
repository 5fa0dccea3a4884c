"""Writes payments to lake tables, each once: all of them to a Delta table, and refunds also to an Iceberg table.

Reads `card-payments`, such as {"country": "FR", "euros": 12.5}, with the card as key. Both tables are below the directory
`lake`, in the current directory: any engine that knows Delta or Iceberg can read them. In an object store, only the URLs
and the credentials differ.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/lake.py
"""

from pathlib import Path
from typing import Any

from streamrt import Application
from streamrt.connectors import DeltaSink, IcebergSink

# Each transaction makes files. In resident mode, transaction_interval=10.0 makes fewer and larger ones.
SETTINGS: dict[str, Any] = {"processing_guarantee": "exactly-once"}


def catalog(lake: Path) -> dict[str, str]:
    """Return the properties of an Iceberg catalog in a SQLite file, by pyiceberg's names."""
    path = lake.absolute()
    return {"type": "sql", "uri": f"sqlite:///{path}/catalog.sqlite", "warehouse": f"file://{path}"}


def build(app: Application, lake: Path = Path("lake")) -> None:
    """Add the dataframe of this example to an application."""
    payments = app.topic("card-payments", key_deserializer="str")

    sdf = app.dataframe(payments)
    # Numbers of JSON may be integers, and the first values decide on the type of a column.
    sdf["euros"] = sdf["euros"].apply(float)
    # The key and the time of each record become the columns _key and _timestamp.
    sdf.sink(DeltaSink(lake / "payments", partition_by="country"))
    refunds = sdf[sdf["euros"] < 0]
    refunds.sink(IcebergSink("shop.refunds", catalog_properties=catalog(lake)))


if __name__ == "__main__":
    Path("lake").mkdir(exist_ok=True)
    app = Application(consumer_group="lake", auto_offset_reset="earliest", **SETTINGS)
    build(app)
    app.run()
