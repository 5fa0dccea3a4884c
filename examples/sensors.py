"""Fills a DuckDB file with the readings of simulated sensors: a source that generates, and a database without a server.

The source produces 1,000 readings to the topic `source__sensors`, 200 per second. The sink writes them to the table
`readings` of sensors.duckdb, in the current directory, each once. The program ends when no more readings come, and asks
the table for the means. Between two transactions, the duckdb command can do the same while the program runs.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/sensors.py
"""

from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import duckdb

from streamrt import Application
from streamrt.connectors import DuckDBSink, RateSource

# DuckDB suits few large transactions.
SETTINGS: dict[str, Any] = {"processing_guarantee": "exactly-once", "commit_interval": 2.0}
MEANS = "SELECT __key AS sensor, count(*) AS readings, round(avg(celsius), 2) AS celsius FROM readings GROUP BY 1 ORDER BY 1"


def sensor(number: int, rng: Random) -> str:
    """Return the key of a reading."""
    return f"sensor-{number % 5}"


def reading(number: int, rng: Random) -> dict[str, float]:
    """Return the value of a reading."""
    return {"celsius": round(rng.gauss(21, 2), 1), "percent": round(rng.uniform(30, 60), 1)}


def build(app: Application, path: Path = Path("sensors.duckdb"), count: int = 1_000) -> None:
    """Add source and dataframe of this example to an application."""
    sensors = RateSource(200, reading, sensor, count=count, seed=7, name="sensors")

    sdf = app.dataframe(source=sensors)
    sdf["humid"] = sdf["percent"] > 50
    # The key and the time of each record become the columns __key and timestamp.
    sdf.sink(DuckDBSink(path, "readings"))


if __name__ == "__main__":
    app = Application(consumer_group="sensors", auto_offset_reset="earliest", **SETTINGS)
    build(app)
    app.run(timeout=5)
    with closing(duckdb.connect("sensors.duckdb", read_only=True)) as connection:
        print(connection.sql(MEANS))
