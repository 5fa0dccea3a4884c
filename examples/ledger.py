"""Totals by account in a SQLite database, each booking once, whatever happens in between.

The table `totals` of bank.sqlite, in the current directory, has one row for each account, and the table `bookings` one for
each booking. The sinks store how far they have come beside the rows, so a crash at any moment loses and repeats nothing.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/ledger.py
"""

from pathlib import Path
from typing import Any

from streamrt import Application, State
from streamrt.connectors import SQLiteSink

SETTINGS: dict[str, Any] = {"processing_guarantee": "exactly-once"}


def total(booking: dict[str, Any], state: State) -> dict[str, Any]:
    """Add a booking to the total of its account."""
    cents = state.get("cents", 0) + booking["cents"]
    state.set("cents", cents)
    return {"account": booking["account"], "cents": cents}


def build(app: Application, path: Path = Path("bank.sqlite")) -> None:
    """Add the dataframe of this example to an application."""
    bookings = app.topic("bookings", key_deserializer="str", key_serializer="str")

    sdf = app.dataframe(bookings)
    sdf.sink(SQLiteSink(path, "bookings"))
    totals = sdf.apply(total, stateful=True)
    totals.sink(
        SQLiteSink(
            path,
            "totals",
            primary_key_columns="account",
            upsert_on_primary_key=True,
            include_metadata=False,
        )
    )


if __name__ == "__main__":
    app = Application(consumer_group="ledger", auto_offset_reset="earliest", **SETTINGS)
    build(app)
    app.run()
