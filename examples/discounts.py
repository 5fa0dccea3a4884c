"""Gives orders the best discount that is in force, whatever partition they are in.

Reads `discounts`, such as {"minimum": 100.0, "percent": 5} with the name of the discount as key, and `priced-orders`, such as
{"total": 120.0}. Each discount reaches all partitions of the orders. A discount with `percent` 0 ends. Writes orders with
their discount to `discounted-orders`.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/discounts.py
"""

from collections.abc import Iterator
from typing import Any

from streamrt import Application, BroadcastContext, BroadcastProcessFunction, StreamingDataFrame


class Discounts(BroadcastProcessFunction):
    """Keeps the discounts, and applies them to orders."""

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
        """Keep a discount, or end it."""
        discounts = ctx.broadcast_state("discounts")
        if value["percent"] == 0:
            discounts.discard(ctx.key)
        else:
            discounts[ctx.key] = value

    def process_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
        """Apply the best discount to an order."""
        discounts = ctx.broadcast_state("discounts").values()
        percent = max((each["percent"] for each in discounts if value["total"] >= each["minimum"]), default=0)
        yield {**value, "percent": percent, "pay": round(value["total"] * (100 - percent) / 100, 2)}


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application."""
    orders = app.dataframe(app.topic("priced-orders", key_deserializer="str"))
    # All discounts are read, also by an application that begins at the end of the orders.
    discounts = app.dataframe(app.topic("discounts", key_deserializer="str", auto_offset_reset="earliest"))
    discounted = orders.connect(discounts.broadcast()).process(Discounts())
    return discounted.to_topic(app.topic("discounted-orders", key_serializer="str"))


if __name__ == "__main__":
    app = Application(consumer_group="discounts")
    build(app)
    app.run()
