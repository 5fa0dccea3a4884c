"""Matches orders with their payments, and reports orders that are not paid within a quarter of an hour.

Reads `order-events`, such as {"type": "order", "total": 20.0} and {"type": "payment", "total": 20.0}, with the order's
id as key. Writes paid orders to `paid-orders`, and the others to `unpaid-orders`. Payments of a wrong amount go to
`wrong-payments` at once.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/unpaid_orders.py
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from streamrt import Application, Context, ProcessFunction, StreamingDataFrame, TimerContext

PATIENCE_MS = 15 * 60 * 1_000


class Payments(ProcessFunction):
    """Keeps each order until it is paid, or until its time is over."""

    outputs: ClassVar[tuple[str, ...]] = ("unpaid", "wrong")

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        """Keep an order, or match a payment with it."""
        order = ctx.state.value("order")
        if value["type"] == "order":
            order.update({"total": value["total"], "at": ctx.timestamp})
            ctx.register_event_time_timer(ctx.timestamp + PATIENCE_MS)
            return
        known = order.value()
        if known is None or known["total"] != value["total"]:
            ctx.output("wrong", {"paid": value["total"], "due": None if known is None else known["total"]})
            return
        ctx.delete_event_time_timer(known["at"] + PATIENCE_MS)
        order.clear()
        yield {"total": known["total"], "seconds": (ctx.timestamp - known["at"]) / 1_000}

    def on_timer(self, timestamp: int, ctx: TimerContext) -> None:
        """Give up an order."""
        ctx.output("unpaid", {"total": ctx.state.value("order").value()["total"]})
        ctx.state.clear()


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application."""
    events = app.topic("order-events", key_deserializer="str")
    names = {"unpaid": "unpaid-orders", "wrong": "wrong-payments"}

    paid = app.dataframe(events).process(Payments())
    for tag, name in names.items():
        paid.side_output(tag).to_topic(app.topic(name, key_serializer="str"))
    return paid.to_topic(app.topic("paid-orders", key_serializer="str"))


if __name__ == "__main__":
    app = Application(consumer_group="unpaid-orders", auto_offset_reset="earliest")
    build(app)
    app.run()
