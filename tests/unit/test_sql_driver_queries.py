"""Queries of an application under test: its tables, its state, and statements that its inputs get."""

from collections.abc import Iterator

import pytest

from streamrt import Application
from streamrt.errors import ArgumentValueError, InvalidOperationError
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing import TopologyTestDriver


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_database("shop")
    orders = catalog.create_table("shop.orders", "customer STRING, amount BIGINT", key=["customer"], num_partitions=2)
    catalog.create_table("shop.totals", "customer STRING, total BIGINT, PRIMARY KEY (customer)", num_partitions=2)
    app = Application("localhost:1", consumer_group="none", catalog=catalog)

    def add(row: dict[str, object], state: object) -> dict[str, object]:
        total = state.get("total", 0) + row["amount"]  # type: ignore[attr-defined]
        state.set("total", total)  # type: ignore[attr-defined]
        return {"customer": row["customer"], "total": total}

    app.dataframe(orders).apply(add, stateful=True).to_table("shop.totals")
    with TopologyTestDriver(app) as driver:
        yield driver


def test_rows_that_are_inserted_are_processed_and_queried(driver: TopologyTestDriver) -> None:
    done = driver.execute("INSERT INTO shop.orders VALUES ('ann', 10), ('bob', 3), ('ann', 5)")
    assert done.rows == 3
    assert list(driver.query("SELECT * FROM shop.totals ORDER BY customer")) == [
        {"customer": "ann", "total": 15},
        {"customer": "bob", "total": 3},
    ]
    joined = "SELECT count(*) AS n FROM shop.orders o JOIN shop.totals t USING (customer) WHERE t.total > :least"
    assert driver.query(joined, {"least": 5}).one() == {"n": 2}


def test_state_is_a_table(driver: TopologyTestDriver) -> None:
    driver.execute("INSERT INTO shop.orders VALUES ('ann', 10), ('bob', 3)")
    asked = "SELECT key, state_key, CAST(value AS BIGINT) AS total FROM streamrt_state.default ORDER BY total"
    assert [(row["state_key"], row["total"]) for row in driver.query(asked)] == [("total", 3), ("total", 10)]
    with pytest.raises(ArgumentValueError, match="there is no store 'other'; the stores are default"):
        driver.query("SELECT * FROM streamrt_state.other")


def test_the_catalogue_is_described(driver: TopologyTestDriver) -> None:
    driver.execute("INSERT INTO shop.orders VALUES ('ann', 10)")
    asked = (
        "SELECT t.name, sum(p.end_offset) AS n FROM system.tables t JOIN system.topics p USING (topic) GROUP BY t.name"
    )
    assert {row["name"]: row["n"] for row in driver.query(asked)} == {"shop.orders": 1, "shop.totals": 1}


def test_logs_refuse_changes(driver: TopologyTestDriver) -> None:
    with pytest.raises(InvalidOperationError, match="has no primary key"):
        driver.execute("DELETE FROM shop.orders")


def test_fe093_plain_views_are_read_as_their_queries() -> None:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_database("shop")
    orders = catalog.create_table("shop.orders", "customer STRING, amount BIGINT", num_partitions=1)
    app = Application("localhost:1", consumer_group="none", catalog=catalog)
    app.dataframe(orders).to_table(catalog.create_table("shop.copy", orders.schema, num_partitions=1))
    app.sql("CREATE VIEW large (who, euros) AS SELECT customer, amount FROM shop.orders WHERE amount > 5")
    with TopologyTestDriver(app) as driver:
        driver.execute("INSERT INTO shop.orders VALUES ('ann', 10), ('bob', 3), ('ann', 7)")
        asked = "SELECT l.who, sum(l.euros) AS euros FROM large l GROUP BY l.who"
        assert driver.query(asked).one() == {"who": "ann", "euros": 17}
        assert driver.query("SELECT count(*) AS n FROM Large").one() == {"n": 2}
