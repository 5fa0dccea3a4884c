"""Counts stock exactly once: a delivery that is counted twice after a crash would stay wrong forever.

Reads `movements`, such as {"pieces": -2, "why": "sold"}, with the product as key, and writes the new stock of the
product to `stock`. Kill the program with `kill -9` as often as you like: each movement changes the stock once.

Outputs, state and offsets are committed together in Kafka transactions. Consumers benefit only if they read committed
records: `isolation.level=read_committed`.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/inventory.py
"""

from typing import Any

from streamrt import Application, State, StreamingDataFrame

SETTINGS: dict[str, Any] = {"processing_guarantee": "exactly-once"}


def book(movement: dict[str, Any], state: State) -> dict[str, Any]:
    """Change the stock of a product, and return it."""
    pieces = state.get("pieces", 0) + movement["pieces"]
    number = state.get("movements", 0) + 1
    state.set("pieces", pieces)
    state.set("movements", number)
    return {"pieces": pieces, "movements": number, "why": movement["why"]}


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application."""
    movements = app.topic("movements", key_deserializer="str")
    stock = app.topic("stock", key_deserializer="str", key_serializer="str")

    sdf = app.dataframe(movements)
    sdf = sdf.apply(book, stateful=True)
    sdf["short"] = sdf["pieces"] < 10
    return sdf.to_topic(stock)


if __name__ == "__main__":
    app = Application(consumer_group="inventory", auto_offset_reset="earliest", **SETTINGS)
    build(app)
    app.run()
