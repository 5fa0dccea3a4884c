"""SQL and Python in one program: a Python function in SQL, and SQL over a dataframe of Python.

Teachers send the marks of students. SQL joins them with their names and computes averages with a function of Python; Python
then decides in a dataframe who gets a prize, and SQL counts prizes. The program drops its tables at its end, so it may run
again. After a run that broke off, it says that the tables exist.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/sql_and_python.py
"""

import os
import tempfile
from collections.abc import Callable
from typing import Any

from streamrt import Application
from streamrt.tables import Catalog, Table

STUDENTS, GRADES, AVERAGES, LETTERS = "school.students", "school.grades", "school.averages", "school.letters"


def tables(catalog: Catalog) -> None:
    """Create the tables."""
    catalog.create_database("school", if_exists="ignore")
    catalog.create_table(STUDENTS, "id BIGINT, name STRING, PRIMARY KEY (id)", num_partitions=1)
    catalog.create_table(
        GRADES,
        "student_id BIGINT, science BIGINT, maths BIGINT, art BIGINT, PRIMARY KEY (student_id)",
        num_partitions=1,
    )


def letter_of(average: float | None) -> str | None:
    """Return the letter of an average."""
    if average is None:
        return None
    return "A" if average >= 90 else "B" if average >= 75 else "C"


def has_passed(row: dict[str, Any]) -> bool:
    """Return whether a student has passed."""
    average: float = row["average"]
    return average >= 60


def build(app: Application) -> None:
    """Declare the views, and what Python does between them."""
    app.register_function("letter_of", letter_of, "STRING")
    app.sql(
        """
        CREATE MATERIALIZED VIEW school.averages AS
        SELECT name, (science + maths + art) / 3 AS average
        FROM school.students JOIN school.grades ON id = student_id
        """
    )
    averages = app.view(AVERAGES)
    passed = averages.frame.filter(has_passed)
    app.sql(
        """
        CREATE MATERIALIZED VIEW school.letters AS
        SELECT letter_of(average) AS letter, count(*) AS students, max(name) AS last FROM {passed} GROUP BY letter_of(average)
        """,
        schemas={"passed": averages.schema},
        passed=passed,
    )


def change(open_table: Callable[[str], Table], wait: Callable[[], object]) -> dict[str, Any]:
    """Write and change rows; return the rows of the views.

    Args:
        open_table: opens a table.
        wait: returns when everything that was written is processed.
    """
    open_table(STUDENTS).upsert([{"id": 1, "name": "ann"}, {"id": 2, "name": "ben"}, {"id": 3, "name": "cem"}])
    grades = open_table(GRADES)
    grades.upsert(
        [
            {"student_id": 1, "science": 97, "maths": 90, "art": 88},
            {"student_id": 2, "science": 80, "maths": 72, "art": 75},
            {"student_id": 3, "science": 40, "maths": 60, "art": 50},
        ]
    )
    wait()
    shown = {"averages": read(open_table(AVERAGES), "name"), "letters": read(open_table(LETTERS), "letter")}
    # A mark was read wrongly.
    grades.upsert({"student_id": 3, "science": 90, "maths": 94, "art": 95})
    wait()
    return shown | {"letters after a change": read(open_table(LETTERS), "letter")}


def read(table: Table, first: str) -> list[dict[str, Any]]:
    """Return the rows of a view in the order of a column."""
    columns = {AVERAGES: ["name", "average"], LETTERS: ["letter", "students", "last"]}[table.name]
    return sorted(table.scan(columns).rows(), key=lambda row: str(row[first]))


if __name__ == "__main__":
    address = os.environ.get("STREAMRT_BROKER_ADDRESS", "localhost:9092")
    with Catalog(address) as catalog, tempfile.TemporaryDirectory() as directory:
        tables(catalog)
        app = Application(
            address,
            consumer_group="school-views",
            catalog=catalog,
            state_dir=directory,
            processing_guarantee="exactly-once",
            processing_mode="resident",
            spark_master="processes[1]",
        )
        build(app)
        app.start()
        for what, rows in change(catalog.table, lambda: app.wait_for_idle(1.0)).items():
            print(f"{what}: {rows!r}")
        app.stop(wait=True)
        for name in (LETTERS, AVERAGES, GRADES, STUDENTS):
            catalog.drop_table(name, delete_data=True)
