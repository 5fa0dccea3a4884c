"""Looks what is in a topic, follows it, and copies it so that each row arrives once, although the copier is killed.

A writer with an id commits rows and a state together. Started again with the same id, it continues after its last checkpoint.
The program drops its tables at its end, so it may run again. After a run that broke off, it says which table exists.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/endpoints.py
"""

import os
import signal
import subprocess
import sys
from typing import Any

from streamrt.tables import Catalog

ADDRESS = os.environ.get("STREAMRT_BROKER_ADDRESS", "localhost:9092")
LINES = ['{"counter":1,"city":"Lyon"}', '{"counter":2}', '{"counter":3,"ok":true}']
NAMES = ("geo.lines", "geo.counts", "geo.copies")


def tables(catalog: Catalog) -> None:
    """Fill a topic with lines, as another program may have done, and make tables of it."""
    catalog.create_database("geo", if_exists="ignore")
    lines = catalog.create_table("geo.lines", "line STRING", topic="geo.counts", format="string", num_partitions=1)
    lines.append([[line] for line in LINES])
    # The same topic, with a schema that does not fit well. Columns of texts have the JSON text of what is no text.
    counts = catalog.create_table("geo.counts", "counter STRING, zip STRING", topic="geo.counts")
    catalog.create_table("geo.copies", counts.schema, num_partitions=1)


def detected(catalog: Catalog, timeout: float = 10.0) -> dict[str, Any]:
    """Return what the rows of the topic look like, beside the schema that was guessed."""
    counts = catalog.table("geo.counts")
    texts, typed = counts.detect_schema(timeout=timeout), counts.detect_schema(timeout=timeout, types=True)
    nothing = catalog.table("geo.copies").detect_schema(timeout=0.1)
    return {
        "texts": None if texts.schema is None else texts.schema.types,
        "new": texts.new_columns,
        "missing": texts.missing_columns,
        "types": None if typed.schema is None else typed.schema.types,
        "nothing": nothing.schema,
    }


def followed(catalog: Catalog) -> dict[str, Any]:
    """Read two rows, and the rest from the position after them, as another process may do later."""
    counts = catalog.table("geo.counts")
    with counts.subscribe(start="earliest") as stream:
        first = [next(stream).row, next(stream).row]
        position = str(stream.position)
    with counts.subscribe(start=position) as stream:
        rest = [record.row for record in stream.poll(timeout=10.0)]
    return {"first": first, "position": position, "rest": rest}


def copy(catalog: Catalog, killed_after: int | None = None) -> None:
    """Copy rows, and commit after each second one, and after the last.

    Args:
        catalog: the catalogue.
        killed_after: number of rows after which the process is killed; None lets it live.
    """
    counts, copies = catalog.table("geo.counts"), catalog.table("geo.copies")
    with copies.writer(id="copier") as writer:
        # With one partition, an offset is a position; `str(stream.position)` is one for any number of them.
        copied = int(writer.state or 0)
        with counts.subscribe(start={0: copied}) as stream:
            end = counts.offsets("latest")
            while not stream.position.covers(end):
                writer.append(next(stream).row)
                copied += 1
                if copied == killed_after:
                    writer.flush()
                    os.kill(os.getpid(), signal.SIGKILL)
                if copied % 2 == 0 or stream.position.covers(end):
                    writer.checkpoint(str(copied))


def result(catalog: Catalog) -> tuple[list[Any], str | None]:
    """Return the counters of rows that readers see, and the state of the writer."""
    copies = catalog.table("geo.copies")
    # The writer opens when the last commit of its id is complete, so that readers see all of it.
    with copies.writer(id="copier") as writer:
        return [row["counter"] for row in copies.scan(["counter"]).rows()], writer.state


def main() -> None:
    """Show everything, with a copier that is killed."""
    with Catalog(ADDRESS) as catalog:
        tables(catalog)
        for what, found in {**detected(catalog), **followed(catalog)}.items():
            print(f"{what}: {found!r}")
        killed = subprocess.run([sys.executable, __file__, "copy", "3"], check=False)  # noqa: S603 - this program
        print(f"ended by: {-killed.returncode!r}")
        print(f"after the end: {result(catalog)!r}")
        copy(catalog)
        print(f"after another run: {result(catalog)!r}")
        for name in NAMES:
            # Two tables have the same topic: it is deleted with the second.
            catalog.drop_table(name, delete_data=name != "geo.lines")


if __name__ == "__main__":
    if sys.argv[1:2] == ["copy"]:
        with Catalog(ADDRESS) as known:
            copy(known, int(sys.argv[2]))
    else:
        main()
