"""Queries on a real broker: committed rows, tokens, keys, an application that computes, and the command."""

import json
from collections.abc import Iterator

import pytest

from streamrt import Offsets
from streamrt.errors import LookupTimeoutError
from streamrt.tables import Catalog
from tests.command_line import streamrt
from tests.support import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def catalog(kafka: Kafka) -> Iterator[Catalog]:
    with Catalog(kafka.address) as catalog:
        catalog.create_database("asked", if_exists="ignore")
        yield catalog
        for name in catalog.tables("asked"):
            catalog.drop_table(name, delete_data=True)


def test_rows_are_changed_and_asked(catalog: Catalog, kafka: Kafka) -> None:
    catalog.execute("CREATE TABLE asked.orders (id BIGINT, customer STRING, amount DOUBLE) WITH ('partitions' = '3')")
    catalog.execute(
        "CREATE TABLE asked.customers (name STRING, city STRING, PRIMARY KEY (name)) WITH ('partitions' = '3')"
    )
    rows = ", ".join(f"({number}, 'c{number % 7}', {number / 2})" for number in range(500))
    token = catalog.execute(f"INSERT INTO asked.orders VALUES {rows}").token
    catalog.execute("INSERT INTO asked.customers SELECT DISTINCT customer, upper(customer) FROM asked.orders")
    total = "SELECT count(*) AS n, sum(amount) AS total FROM asked.orders"
    assert catalog.query(total, after=token).one() == {"n": 500, "total": sum(range(500)) / 2}
    done = catalog.execute("UPDATE asked.customers SET city = 'Rome' WHERE name IN ('c1', 'c2')")
    catalog.execute("DELETE FROM asked.customers WHERE name = 'c3'")
    joined = (
        "SELECT city, count(*) AS n FROM asked.orders JOIN asked.customers ON name = customer GROUP BY city ORDER BY 1"
    )
    found = list(catalog.query(joined, after=done.token))
    assert [row["city"] for row in found] == ["C0", "C4", "C5", "C6", "Rome"]
    assert catalog.query("SELECT city FROM asked.customers WHERE name = 'c2'").one() == {"city": "Rome"}
    printed = streamrt("sql", "--broker", kafka.address, "--format", "json", "-c", joined)
    assert [json.loads(line) for line in printed.out.splitlines()] == found


def test_rows_of_open_transactions_are_not_seen_and_waited_for(catalog: Catalog) -> None:
    table = catalog.create_table("asked.logged", "id BIGINT", num_partitions=1)
    table.append([[1]])
    with table.writer(id="loader") as writer:
        written = writer.append([2])
        writer.checkpoint("half")
        token = written.token
        writer.append([3])
        asked = "SELECT count(*) AS n FROM asked.logged"
        assert catalog.query(asked, after=token).one() == {"n": 2}
    ahead = {("asked.logged", 0): 1_000}
    with pytest.raises(LookupTimeoutError):
        catalog.query(asked, after=Offsets(ahead), timeout=0.5).one()
