"""Writes trips to Parquet files, a directory for each day: every format of Spark can be a sink.

Reads `trips`, such as {"vehicle": "bus-7", "day": "2024-01-05", "km": 12.5}, and appends each micro-batch to
trips.parquet in the current directory. For Iceberg, Delta or JDBC, change one line of `save`.

A crash may repeat records. The columns `_topic`, `_partition` and `_offset` identify them: drop duplicates on reading.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/parquet.py
"""

from functools import partial
from pathlib import Path
from typing import Any

from streamrt import Application
from streamrt.connectors import BaseSink, SparkSink

COLUMNS = "vehicle STRING, day STRING, km DOUBLE"


def save(path: str, frame: Any) -> None:
    """Append a Spark DataFrame with the trips of a micro-batch."""
    frame.write.mode("append").partitionBy("day").parquet(path)


def build(app: Application, sink: BaseSink | None = None, path: Path = Path("trips.parquet")) -> None:
    """Add the dataframe of this example to an application; tests without Spark pass another sink."""
    sdf = app.dataframe(app.topic("trips"))
    sdf = sdf[sdf["km"] > 0]
    if sink is None:
        sink = SparkSink(partial(save, str(path.absolute())), schema=COLUMNS, metadata=True)
    sdf.sink(sink)


if __name__ == "__main__":
    app = Application(consumer_group="parquet", auto_offset_reset="earliest")
    build(app)
    app.run()
