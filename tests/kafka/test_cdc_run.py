"""Tables that follow those of a real PostgreSQL, in running applications."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from streamrt.connectors import PostgresCdcSource
from streamrt.tables import Catalog
from tests.postgres import DATABASE, USER, NoPostgresError, Postgres, postgres
from tests.support import LONG, Kafka, running, unique, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not LONG, reason="test_postgres_cdc.py applies the records of the source in the test driver"),
]

CUSTOMERS = "id INT, name STRING, city STRING"


@pytest.fixture
def server() -> Iterator[Postgres]:
    try:
        with postgres({"wal_level": "logical"}) as running_server:
            yield running_server
    except NoPostgresError as error:
        pytest.skip(str(error))


def test_one_line_copies_a_table_and_its_history(kafka: Kafka, server: Postgres) -> None:
    """The second run goes on from the state of the first one."""
    server.execute("CREATE TABLE customers (id INT PRIMARY KEY, name TEXT, city TEXT)")
    server.execute("INSERT INTO customers SELECT n, 'name ' || n, 'Lyon' FROM generate_series(1, 50) n")
    database, group = unique("shop").replace("-", "_"), unique("copies")
    with Catalog(kafka.address) as catalog:
        catalog.create_database(database)
        copy = catalog.create_table(f"{database}.customers", f"{CUSTOMERS}, PRIMARY KEY (id)", num_partitions=2)
        history = catalog.create_table(
            f"{database}.history",
            f"{CUSTOMERS}, __START_AT STRING, __END_AT STRING, PRIMARY KEY (id, __START_AT)",
            num_partitions=2,
        )

        def follow() -> None:
            source = PostgresCdcSource(
                "127.0.0.1", server.port, DATABASE, USER, server.password, ["customers"], commit_interval=0.05
            )
            resident = {"spark_master": "processes[1]", "processing_mode": "resident"}
            app = kafka.app(group, processing_guarantee="exactly-once", **resident)
            events = app.dataframe(source=source)
            events.to_table(copy.name, change_events=True)
            events.to_table(history.name, change_events="public.customers", scd=2)
            with running(app):
                wait_until(lambda: current(copy) == origin(server) == in_force(history), 60, "the copies")

        follow()
        server.execute(
            "UPDATE customers SET city = 'Nice' WHERE id <= 20",
            "UPDATE customers SET id = id + 100 WHERE id > 45",
            "DELETE FROM customers WHERE id BETWEEN 30 AND 40",
            "UPDATE customers SET city = NULL WHERE id = 1",
        )
        follow()
        assert sorted(row[2] for row in current(history) if row[0] == 1 and row[2]) == ["Lyon", "Nice"]
        assert len(current(history)) == 50 + 20 + 5 + 1


def origin(server: Postgres) -> set[tuple[Any, ...]]:
    with psycopg.connect(**server.settings) as connection:
        return set(connection.execute("SELECT id, name, city FROM customers").fetchall())


def current(table: Any) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in table.scan().rows()}


def in_force(table: Any) -> set[tuple[Any, ...]]:
    return {row[:3] for row in current(table) if row[4] is None}
