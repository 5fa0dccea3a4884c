"""Turns the failed requests of compressed log files into Parquet files: a source and a sink of files, each record once.

The source produces the lines of all files below the directory `logs`, in the current directory, to the topic
`source__logs`. Requests that failed are written below the directory `failures`. The program ends when no more lines come.
Run it again after files were added, or have grown: it goes on where it was.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/logs.py
"""

import gzip
import json
from pathlib import Path
from typing import Any

from streamrt import Application
from streamrt.connectors import LocalFileSink, LocalFileSource

SETTINGS: dict[str, Any] = {"processing_guarantee": "exactly-once"}
LINES = [("/", 200), ("/cart", 503), ("/cup", 404), ("/", 200), ("/cart", 500)]


def build(app: Application, logs: Path = Path("logs"), failures: Path = Path("failures")) -> None:
    """Add source and dataframe of this example to an application."""
    source = LocalFileSource(
        logs,
        key_setter=lambda request: request["host"],
        timestamp_setter=lambda request: request["at"],
        # Do not wait as long as the hosts did.
        replay_speed=0,
        name="logs",
    )

    sdf = app.dataframe(source=source)
    sdf = sdf[sdf["status"] >= 500]
    sdf.sink(LocalFileSink(directory=failures, format="parquet"))


def fill(logs: Path) -> None:
    """Write a log file, unless the directory exists."""
    if not logs.exists():
        logs.mkdir()
        with gzip.open(logs / "monday.jsonl.gz", "wt") as file:
            for number, (path, status) in enumerate(LINES):
                at = 1_704_067_200_000 + 1_000 * number
                file.write(json.dumps({"host": "web-1", "at": at, "path": path, "status": status}) + "\n")


if __name__ == "__main__":
    fill(Path("logs"))
    app = Application(consumer_group="logs", auto_offset_reset="earliest", **SETTINGS)
    build(app)
    app.run(timeout=5)
