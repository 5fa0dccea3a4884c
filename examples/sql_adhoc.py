"""Asks tables by SQL, corrects rows, and shows what is refused, without an application.

The program drops its tables at its end, so it may run again. It needs the extra `sql`.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/sql_adhoc.py
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from streamrt.errors import InvalidOperationError, SQLError, TableNotFoundError
from streamrt.tables import Catalog

REFUSED = (
    "SELECT java_method('java.lang.System', 'exit', 1)",
    "SELECT * FROM parquet.`/etc/passwd`",
    "SELECT * FROM read_csv('/etc/passwd')",
    "DROP TABLE demo.events",
    "SELECT 1; DELETE FROM app.users",
    "SELECT * FROM nowhere",
    "SELEC 1",
)


def write_rows(catalog: Catalog) -> None:
    """Create a log and a table with a primary key."""
    for database in ("demo", "app"):
        catalog.create_database(database, if_exists="ignore")
    events = catalog.create_table("demo.events", "id INT, name STRING, score DOUBLE", num_partitions=1)
    events.append([[1, "Alice", 95.5], [2, "Bob", 87.0], [3, "Charlie", 91.0]])
    users = catalog.create_table("app.users", "id INT, name STRING, age INT, PRIMARY KEY (id)", num_partitions=1)
    users.upsert([[1, "Alice", 27], [2, "Bob", 30], [3, "Charlie", 35]])
    users.delete([2])


def refused(catalog: Catalog, text: str) -> str:
    """Return why a text is refused."""
    try:
        if text.startswith("DELETE"):
            catalog.execute(text)
        else:
            catalog.query(text)
    except (InvalidOperationError, SQLError, TableNotFoundError) as error:
        return str(error)
    return "not at all"


def run(catalog: Catalog) -> dict[str, Any]:
    """Ask, correct, and ask again; return what was found."""
    write_rows(catalog)
    best = catalog.query("SELECT name, score FROM demo.events WHERE score > :least ORDER BY score DESC", {"least": 90})
    joined = catalog.query(
        "SELECT u.name, u.age, e.score FROM app.users u JOIN demo.events e ON e.id = u.id ORDER BY u.id"
    )
    with tempfile.TemporaryDirectory() as directory:
        # The file is users.parquet.
        written = joined.to_parquet(Path(directory) / "users")
    changed = catalog.execute("UPDATE app.users SET age = 36 WHERE id = 3")
    age = catalog.query("SELECT age FROM app.users WHERE id = 3", after=changed.token).one()["age"]
    deleted = catalog.execute("DELETE FROM app.users WHERE age < 30")
    return {
        "best": [(row["name"], row["score"]) for row in best],
        "joined": [(row["name"], row["age"], row["score"]) for row in joined],
        "written": written,
        "changed": (changed.rows, age),
        "deleted": deleted.rows,
        "refusals": [refused(catalog, text) for text in (*REFUSED, "DELETE FROM demo.events")],
    }


if __name__ == "__main__":
    with Catalog(os.environ.get("STREAMRT_BROKER_ADDRESS", "localhost:9092")) as catalog:
        for what, found in run(catalog).items():
            print(f"{what}: {found!r}")
        for name in ("demo.events", "app.users"):
            catalog.drop_table(name, delete_data=True)
