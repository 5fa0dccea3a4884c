"""The verification of views: what is equal, what differs and of which records it was made, and what is refused."""

from datetime import datetime, timedelta

import pytest

from streamrt import Application
from streamrt.errors import ArgumentValueError, InvalidOperationError, SQLNotSupportedError
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing import InputRecord, TopologyTestDriver

PROGRAM = """
    CREATE VIEW large AS SELECT customer, amount FROM shop.orders WHERE amount > 0;
    CREATE MATERIALIZED VIEW shop.totals AS
        SELECT customer, sum(amount) AS total, count(*) AS orders FROM large GROUP BY customer;
    CREATE MATERIALIZED VIEW shop.names AS SELECT name_of(customer) AS name FROM shop.orders;
"""


@pytest.fixture
def driver() -> TopologyTestDriver:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_database("shop")
    columns = "id BIGINT, customer STRING, amount BIGINT, PRIMARY KEY (id)"
    catalog.create_table("shop.orders", columns, num_partitions=2)
    app = Application("unused:9092", consumer_group="shop", catalog=catalog, processing_guarantee="exactly-once")
    app.register_function("name_of", str.upper, "STRING", ["STRING"])
    app.sql(PROGRAM)
    driver = TopologyTestDriver(app)
    rows = [{"id": number, "customer": "ann" if number % 3 else "bob", "amount": number} for number in range(9)]
    driver.pipe_many(InputRecord("shop.orders", row, key=row["id"]) for row in rows)
    driver.pipe("shop.orders", None, key=4)
    return driver


def test_a_view_over_a_view_is_equal_to_its_query(driver: TopologyTestDriver) -> None:
    found = driver.verify("shop.totals")
    assert found.equal, str(found)
    assert (found.rows, sorted(found.offsets.partition_map("shop.orders"))) == (2, [0, 1])


def test_local_views_are_those_of_their_program() -> None:
    catalog = Catalog(store=MemoryCatalog())
    app = Application("unused:9092", consumer_group="shop", catalog=catalog, processing_guarantee="exactly-once")
    app.sql("CREATE TABLE orders (id BIGINT NOT NULL, amount BIGINT, PRIMARY KEY (id))")
    for name, least in (("all_of_them", 0), ("large", 5)):
        app.sql(
            f"""
            CREATE LOCAL VIEW some AS SELECT id, amount FROM orders WHERE amount > {least};
            CREATE VIEW listed_{name} AS SELECT id FROM some;
            CREATE MATERIALIZED VIEW {name} AS SELECT count(*) AS n FROM some JOIN listed_{name} l ON some.id = l.id;
            """
        )
    driver = TopologyTestDriver(app)
    driver.pipe_many(InputRecord("default.orders", {"id": n, "amount": n}, key=n) for n in range(9))
    for name, count in (("all_of_them", 8), ("large", 3)):
        assert [row["n"] for row in driver.table(name).scan().rows()] == [count]
        found = driver.verify(name)
        assert found.equal, str(found)
        ids = [row["id"] for row in driver.query(f"SELECT id FROM listed_{name} ORDER BY id")]
        assert ids == list(range(9 - count, 9))


def test_rows_that_differ_are_named_with_the_records_that_made_them(driver: TopologyTestDriver) -> None:
    surplus = {"customer": "bob", "total": 1, "orders": 2}
    driver.table("shop.totals").upsert([{"_row_key": "x", **surplus}])
    found = driver.verify("shop.totals")
    (row,) = found.differences
    assert (found.equal, row.kind, row.row) == (False, "surplus", surplus)
    assert {(record.topic, record.key) for record in row.records} == {("shop.orders", key) for key in "036"}
    hidden = driver.verify("shop.totals", hide=["customer"])
    assert "bob" not in str(hidden)
    assert "total=1" in str(hidden)
    assert "total=1" not in str(driver.verify("shop.totals", hide=True))


def test_what_cannot_be_verified_is_refused(driver: TopologyTestDriver) -> None:
    with pytest.raises(
        ArgumentValueError, match=r"'shop\.total', but the views of the application are large, shop\.totals"
    ):
        driver.verify("shop.total")
    with pytest.raises(ArgumentValueError, match="has no such column"):
        driver.verify("shop.totals", hide=["customers"])
    with pytest.raises(InvalidOperationError, match="write CREATE MATERIALIZED VIEW"):
        driver.verify("large")
    with pytest.raises(SQLNotSupportedError, match=r"DuckDB cannot compute the same: line 1, .*name_of"):
        driver.verify("shop.names")


def test_parameters_of_views_are_those_of_their_program() -> None:
    catalog = Catalog(store=MemoryCatalog())
    app = Application("unused:9092", consumer_group="shop", catalog=catalog, processing_guarantee="exactly-once")
    app.sql("CREATE TABLE orders (id BIGINT NOT NULL, name STRING, at TIMESTAMP, amount DOUBLE, PRIMARY KEY (id))")
    for name, values in (("low", {"least": 1, "since": "b"}), ("high", {"least": 4, "since": "c"})):
        app.sql(
            f"""
            CREATE VIEW some_{name} AS SELECT id, name || :since AS name, amount * :factor AS amount FROM orders
                WHERE id >= :least AND at >= :start AND name IS DISTINCT FROM :nothing;
            CREATE MATERIALIZED VIEW {name} AS
                SELECT name, sum(amount) AS n FROM some_{name} WHERE name > :since GROUP BY name
            """,
            {**values, "factor": 0.5, "start": datetime(2026, 1, 1), "nothing": None},
        )
    driver = TopologyTestDriver(app)
    for n in range(9):
        row = {"id": n, "name": "abcd"[n % 4], "at": datetime(2025, 12, 31) + timedelta(hours=12 * n), "amount": n}
        driver.pipe("default.orders", row, key=n)
    for name, count in (("low", 3), ("high", 2)):
        found = driver.verify(name)
        assert found.equal, str(found)
        assert found.rows == count
    assert [row["id"] for row in driver.query("SELECT id FROM some_high ORDER BY id")] == [4, 5, 6, 7, 8]
