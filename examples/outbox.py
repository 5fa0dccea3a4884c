"""Follows a table of a database: a custom source that remembers, after a restart, how far it has read.

The table `outbox` of the SQLite database shop.sqlite, in the current directory, gets a row for each order, written in
the same transaction as the order. The source produces the rows to `source__outbox`, and the dataframe writes the
packing instructions to `parcels`. A crash repeats the rows since the last flush, and loses none.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/outbox.py
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from streamrt import Application
from streamrt.connectors import StatefulSource

TABLE = (
    "CREATE TABLE outbox (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, item TEXT NOT NULL, pieces INTEGER NOT NULL)"
)
ORDERS = [("ann", "kettle", 1), ("bob", "cup", 6), ("ann", "teapot", 0)]


class Outbox(StatefulSource):
    """Produces the rows of the table in the order of their ids."""

    def __init__(self, path: Path) -> None:
        # Only settings: this object is sent to a separate process, which then calls run().
        super().__init__("outbox")
        self._path = path.absolute()

    def run(self) -> None:
        """Look for new rows until the application stops."""
        with closing(sqlite3.connect(self._path)) as connection:
            while self.running:
                if not self._produce_new(connection):
                    self.sleep(0.5)

    def _produce_new(self, connection: sqlite3.Connection) -> bool:
        last = self.state.get("last", 0)
        query = "SELECT id, customer, item, pieces FROM outbox WHERE id > ? ORDER BY id LIMIT 1000"
        rows = connection.execute(query, (last,)).fetchall()
        for number, customer, item, pieces in rows:
            message = self.serialize(key=customer, value={"order": number, "item": item, "pieces": pieces})
            self.produce(message.value, message.key)
        if rows:
            self.state.set("last", rows[-1][0])
            # The records are delivered before "last" is written.
            self.flush()
        return bool(rows)


def build(app: Application, path: Path = Path("shop.sqlite")) -> None:
    """Add source and dataframe of this example to an application."""
    parcels = app.topic("parcels", key_deserializer="str", key_serializer="str")

    sdf = app.dataframe(source=Outbox(path))
    sdf = sdf[sdf["pieces"] > 0]
    sdf.to_topic(parcels)


def fill(path: Path) -> None:
    """Make the table with a few orders, unless it exists."""
    with closing(sqlite3.connect(path)) as connection, connection:
        if not connection.execute("SELECT name FROM sqlite_master WHERE name = 'outbox'").fetchall():
            connection.execute(TABLE)
            connection.executemany("INSERT INTO outbox (customer, item, pieces) VALUES (?, ?, ?)", ORDERS)


if __name__ == "__main__":
    fill(Path("shop.sqlite"))
    app = Application(consumer_group="outbox", auto_offset_reset="earliest")
    build(app)
    app.run()
