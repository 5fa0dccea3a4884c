"""Sends each order to a topic that depends on the order, and large orders to a manual check.

Reads `orders`, such as {"country": "FR", "total": 120.0}, keyed by customer.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/routing.py
"""

from streamrt import Application, StreamingDataFrame

HOME = "FR"
LARGE = 1_000


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application."""
    orders = app.topic("orders", key_deserializer="str")
    # Every topic is declared before the application runs, also topics that a function chooses.
    domestic = app.topic("orders-domestic", key_serializer="str")
    abroad = app.topic("orders-abroad", key_serializer="str")
    review = app.topic("orders-review", key_serializer="str")

    sdf = app.dataframe(orders)
    # Two branches begin at the same frame; each works on a copy of the value, so they do not affect each other.
    large = sdf[sdf["total"] >= LARGE]
    large["reason"] = "large"
    large.to_topic(review)
    return sdf.to_topic(lambda value, key, timestamp, headers: domestic if value["country"] == HOME else abroad)


if __name__ == "__main__":
    app = Application(consumer_group="routing", auto_offset_reset="earliest")
    build(app)
    app.run()
