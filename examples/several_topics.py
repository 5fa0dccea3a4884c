"""Several topics and dataframes in one application: two kinds of records become one.

Reads `page-views`, such as {"user": "ann", "url": "/a"}, and `purchases`, such as {"customer": "ann", "cents": 1999}.
Writes both to `activities` in one form, keyed by user. Purchases also go to `receipts`.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/several_topics.py
"""

from typing import Any

from streamrt import Application


def from_view(view: dict[str, Any]) -> dict[str, Any]:
    """Return the activity of a page view."""
    return {"user": view["user"], "did": "view", "what": view["url"]}


def from_purchase(purchase: dict[str, Any]) -> dict[str, Any]:
    """Return the activity of a purchase."""
    return {"user": purchase["customer"], "did": "buy", "what": f"{purchase['cents'] / 100:.2f}"}


def user(activity: dict[str, Any]) -> str:
    """Return the key of an activity."""
    return str(activity["user"])


def build(app: Application) -> None:
    """Add the dataframes of this example to an application."""
    activities = app.topic("activities", key_deserializer="str", key_serializer="str")
    receipts = app.topic("receipts", key_deserializer="str", key_serializer="str")

    views = app.dataframe(app.topic("page-views"))
    views.apply(from_view).to_topic(activities, key=user)

    purchases = app.dataframe(app.topic("purchases"))
    purchases.apply(from_purchase).to_topic(activities, key=user)
    purchases["euros"] = (purchases["cents"] / 100).round(2)
    purchases[["customer", "euros"]].to_topic(receipts, key=lambda value: value["customer"])


if __name__ == "__main__":
    app = Application(consumer_group="several-topics", auto_offset_reset="earliest")
    build(app)
    app.run()
