"""Copies a table so that each row arrives once, although the program may end at any time; and looks what is in a topic.

Started again with the same id, the writer continues after its last checkpoint: rows and state were committed together.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/endpoints.py
"""

import os
from typing import Any

from streamrt.tables import Catalog

ROWS: list[dict[str, Any]] = [
    {"counter": 1, "city": "Lyon"},
    {"counter": 2, "city": None},
    {"counter": 3, "city": None, "ok": True},
]


class Killed(Exception):  # noqa: N818 - it stands for the end of a process
    """The program ends here."""


def tables(catalog: Catalog) -> None:
    """Create the table with its rows, and the table of copies."""
    catalog.create_database("geo", if_exists="ignore")
    rows = catalog.create_table("geo.counts", "counter BIGINT, city STRING, ok BOOLEAN", num_partitions=1)
    rows.append(ROWS)
    # Another look at the same topic, with a schema that does not fit well.
    catalog.create_table("geo.guess", "counter STRING, zip STRING", topic=rows.info.topic)
    catalog.create_table("geo.copies", rows.schema, num_partitions=1)


def copy(catalog: Catalog, killed_after: int | None = None) -> str | None:
    """Copy rows, and commit after each second one; return the state of the writer."""
    source, copies = catalog.table("geo.counts"), catalog.table("geo.copies")
    with copies.writer(id="copier") as writer, source.subscribe(start=writer.state or "earliest") as stream:
        end = source.offsets("latest")
        for number, record in enumerate(stream, 1):
            writer.append(record.row)
            if number == killed_after:
                raise Killed
            if number % 2 == 0 or stream.position.covers(end):
                writer.checkpoint(str(stream.position))
            if stream.position.covers(end):
                break
        return writer.state


def detected(catalog: Catalog, timeout: float = 10.0) -> dict[str, Any]:
    """Return what the rows of the topic look like, beside the schema that was guessed."""
    guess = catalog.table("geo.guess")
    texts, typed = guess.detect_schema(timeout=timeout), guess.detect_schema(timeout=timeout, types=True)
    nothing = catalog.table("geo.copies").detect_schema(timeout=0.1)
    return {
        "texts": None if texts.schema is None else texts.schema.types,
        "new": texts.new_columns,
        "missing": texts.missing_columns,
        "types": None if typed.schema is None else typed.schema.types,
        "nothing": nothing.schema,
        # Columns of texts read what is no text as its JSON.
        "counters": [row["counter"] for row in guess.scan(["counter"]).rows()],
    }


if __name__ == "__main__":
    with Catalog(os.environ.get("STREAMRT_BROKER_ADDRESS", "localhost:9092")) as catalog:
        tables(catalog)
        print(detected(catalog))
        print(copy(catalog))
        print(list(catalog.table("geo.copies").scan().rows()))
