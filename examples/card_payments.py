"""Keeps a running total for each card and detects double charges: state, with and without a time to live.

Reads `payments`, such as {"merchant": "kiosk", "cents": 250}, with the number of the card as key. Writes each payment
to `payments-checked` with the total of the card, and whether the same merchant charged the same amount within the ten
minutes before.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/card_payments.py
"""

from datetime import timedelta
from typing import Any

from streamrt import Application, State, StreamingDataFrame

REMEMBERED = timedelta(minutes=10)


def check(payment: dict[str, Any], state: State) -> dict[str, Any]:
    """Add the history of the card; `state` is that of the record's key."""
    paid = state.get("cents", 0) + payment["cents"]
    state.set("cents", paid)
    # Keys may be anything with a JSON form. Time is event time: a replay a year later gives the same results.
    charge = ["charge", payment["merchant"], payment["cents"]]
    twice = state.exists(charge)
    state.set(charge, True, ttl=REMEMBERED)
    return {**payment, "paid_cents": paid, "twice": twice}


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application."""
    payments = app.topic("payments", key_deserializer="str")
    checked = app.topic("payments-checked", key_deserializer="str", key_serializer="str")

    sdf = app.dataframe(payments)
    sdf = sdf.apply(check, stateful=True)
    return sdf.to_topic(checked)


if __name__ == "__main__":
    app = Application(consumer_group="card-payments", auto_offset_reset="earliest")
    build(app)
    app.run()
