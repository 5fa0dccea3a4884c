"""Takes orders from the Kafka cluster of a partner, and sends confirmations back there.

The source copies `partner-orders` of the other cluster to `orders-here`, such as {"order": "a7", "pieces": 3, "cents": 250}.
The sink writes to `partner-confirmations` of the other cluster. To try it with one cluster, leave PARTNER_BROKER_ADDRESS out,
and produce to `partner-orders` before the start.

    STREAMRT_BROKER_ADDRESS=localhost:9092 PARTNER_BROKER_ADDRESS=partner:9092 python examples/partner.py
"""

import os
from typing import Any

from streamrt import Application
from streamrt.connectors import BaseSink, KafkaReplicatorSink, KafkaReplicatorSource

HERE = os.environ.get("STREAMRT_BROKER_ADDRESS", "localhost:9092")
PARTNER = os.environ.get("PARTNER_BROKER_ADDRESS", HERE)


def confirmation(order: dict[str, Any]) -> dict[str, Any]:
    """Return what the partner gets to know."""
    return {"order": order["order"], "total_cents": order["pieces"] * order["cents"]}


def build(app: Application, partner: str = PARTNER, sink: BaseSink | None = None) -> None:
    """Add source and dataframe of this example to an application; tests without Kafka pass another sink."""
    # Copies are bytes; the serializers of this topic are for the dataframe. Records keep their partition if both topics have
    # the same number of partitions.
    orders = app.topic("orders-here")
    source = KafkaReplicatorSource("orders", app.config, "partner-orders", partner, auto_offset_reset="earliest")

    sdf = app.dataframe(orders, source=source)
    sdf = sdf[sdf["pieces"] > 0].apply(confirmation)
    if sink is None:
        sink = KafkaReplicatorSink(partner, "partner-confirmations")
    sdf.sink(sink)


if __name__ == "__main__":
    app = Application(consumer_group="partner", auto_offset_reset="earliest")
    build(app)
    app.run()
