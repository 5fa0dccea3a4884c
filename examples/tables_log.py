"""Writes rows to a table, scans it, and follows it from a position, without an application.

The program drops its table at its end, so it may run again. After a run that broke off, it says that the table exists.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/tables_log.py
"""

import datetime
import os
from typing import Any

import pandas as pd

from streamrt.errors import InvalidOperationError, SchemaMismatchError
from streamrt.tables import Catalog


def refused(attempt: Any) -> str:
    """Return why something is refused."""
    try:
        attempt()
    except (InvalidOperationError, SchemaMismatchError) as error:
        return str(error)
    return "not at all"


def run(catalog: Catalog) -> dict[str, Any]:
    """Write three rows, read them in several ways, and return what was read."""
    catalog.create_database("demo", if_exists="ignore")
    events = catalog.create_table("demo.events", "id INT, name STRING, score DOUBLE", num_partitions=1)
    with events.writer() as writer:
        writer.append({"id": 1, "name": "Alice", "score": 95.5})
        writer.append([2, "Bob", 87.0])
        writer.append_pandas(pd.DataFrame({"id": [3], "name": ["Charlie"], "score": [91.0]}))
        token = writer.flush()
        refusals = [refused(lambda: writer.append([4, "Dee"])), refused(lambda: writer.delete(1))]

    with events.subscribe(start="earliest") as stream:
        first = [next(stream).row["name"], next(stream).row["name"]]
        position = str(stream.position)
    # Any process may go on from there, now or later.
    with events.subscribe(start=position) as stream:
        rest = next(stream)

    an_hour = datetime.timedelta(hours=1)
    now = datetime.datetime.now(datetime.timezone.utc)
    topic = events.info.topic or ""
    return {
        "token": token.partition_map(topic),
        "scores": events.scan(["id", "score"]).to_arrow().to_pylist(),
        "second": list(events.scan([1, 0], start={0: 1}, limit=1).rows()),
        "changes": {record.change_type.short for record in events.scan().records()},
        "offsets": [
            events.offsets(start).partition_map(topic) for start in ("earliest", "latest", now - an_hour, now + an_hour)
        ],
        "first": first,
        "position": position,
        "rest": rest.row,
        "refusals": refusals,
    }


if __name__ == "__main__":
    with Catalog(os.environ.get("STREAMRT_BROKER_ADDRESS", "localhost:9092")) as catalog:
        for what, found in run(catalog).items():
            print(f"{what}: {found!r}")
        catalog.drop_table("demo.events", delete_data=True)
