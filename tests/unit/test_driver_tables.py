"""Tables of the test driver: what is appended is processed, and what the application appends can be read."""

from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ProcessingError
from streamrt.records import TopicPartition
from streamrt.tables import HTTPSSE, Catalog, MemoryCatalog
from streamrt.tables.table import Table
from streamrt.testing import TopologyTestDriver
from tests.unit.table_homes import Tables

pytestmark = pytest.mark.usefixtures("processing_mode")

GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])


def read(table: Table) -> list[tuple[int, int, dict[str, Any]]]:
    """Return partition, offset and row of all records of a table."""
    feed, admin = table.home.links.feed(), table.home.links.admin()
    name, rows = table.info.topic or "", table.home.row_format(table.info)
    partitions = [TopicPartition(name, number) for number in range(table.info.num_partitions or 1)]
    bounds = admin.offset_bounds(partitions, isolation_level="read_committed")
    feed.add({partition: low for partition, (low, _) in bounds.items()})
    feed.resume(partitions)
    return [
        (partition.partition, offset, rows.decode(value, name))
        for partition, batch in feed.poll(0, 1_000)
        for offset, value in zip(batch.offsets, batch.values, strict=True)
        if value is not None
    ]


def append(table: Table, *rows: dict[str, Any], transaction: str | None = None, commit: bool = True) -> list[int]:
    """Append rows as a writer does, and return their offsets."""
    sender = table.home.links.sender(None, transaction)
    form, keys = table.home.row_format(table.info), table.home.key_format(table.info)
    offsets: list[int] = []
    for row in rows:
        sender.produce(
            table.info.topic or "",
            form.encode(row, ""),
            None if keys is None else keys.encode(row),
            on_delivery=lambda error, partition, offset, timestamp: offsets.append(offset),
        )
    sender.flush(1)
    if transaction is not None:
        sender.commit() if commit else sender.abort()
    sender.close()
    return offsets


def make(guarantee: Any = "at-least-once") -> tuple[TopologyTestDriver, list[Any]]:
    tables = Tables()
    tables.add("shop.orders", "id BIGINT NOT NULL, total DOUBLE", num_partitions=2, key=("id",))
    tables.add("shop.large", "id BIGINT NOT NULL, total DOUBLE", topic="large")
    app = Application(
        "unused:9092",
        consumer_group="shop",
        catalog=tables,  # type: ignore[arg-type]
        processing_guarantee=guarantee,
    )
    seen: list[Any] = []
    orders = app.dataframe("shop.orders")
    orders.update(lambda *record: seen.append((record[2], record[0]["id"])), metadata=True)
    orders[orders["total"] > 10].to_table("shop.large")
    return TopologyTestDriver(app, start=5), seen


@GUARANTEES
def test_appended_rows_are_processed_and_outputs_can_be_read(guarantee: Any) -> None:
    driver, seen = make(guarantee)
    orders, large = driver.table("shop.orders"), driver.catalog.table("shop.large")
    append(orders, *({"id": number, "total": 10.0 * number} for number in range(4)))
    assert sorted(seen) == [(5, 0), (5, 1), (5, 2), (5, 3)]
    driver.pipe("shop.orders", {"id": 9, "total": 90}, key=9, timestamp=7)
    assert [row["id"] for _, _, row in read(large)] == [2, 3, 9]
    assert sorted(row["id"] for _, _, row in read(orders)) == [0, 1, 2, 3, 9]
    assert {number for number, _, _ in read(orders)} == {0, 1}


def test_transactions_of_writers_are_processed_at_their_commit() -> None:
    driver, seen = make()
    orders = driver.table("shop.orders")
    append(orders, {"id": 1, "total": 1.0}, transaction="loader", commit=False)
    assert seen == []
    (offset,) = append(orders, {"id": 1, "total": 2.0}, transaction="loader")
    assert seen == [(5, 1)]
    # Markers of transactions have offsets.
    assert offset > 0
    driver.pipe("shop.orders", {"id": 3, "total": 3.0}, key=1)
    assert sorted(row["total"] for _, _, row in read(orders)) == [2.0, 3.0]


def test_rows_that_were_piped_before_the_table_was_asked_for_are_there() -> None:
    driver, _ = make()
    driver.pipe("shop.orders", {"id": 1, "total": 20}, partition=1)
    # A partition that the table does not have.
    driver.pipe("shop.orders", {"id": 2, "total": 20}, partition=7)
    assert [(number, row["id"]) for number, _, row in read(driver.table("shop.orders"))] == [(1, 1)]
    assert [row["id"] for _, _, row in read(driver.table("shop.large"))] == [1, 2]


def test_an_error_of_the_application_is_raised_where_rows_are_appended() -> None:
    tables = Tables()
    table = tables.add("shop.orders", "id BIGINT")
    app = Application("unused:9092", consumer_group="shop", catalog=tables)  # type: ignore[arg-type]
    app.dataframe(table).apply(lambda row: row["nothing"])
    driver = TopologyTestDriver(app)
    with pytest.raises(ProcessingError, match="offset 0"):
        append(driver.table(table), {"id": 1})


def test_with_the_methods_of_tables() -> None:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_database("shop")
    catalog.create_table("shop.orders", "id BIGINT, total DOUBLE", key=["id"], num_partitions=2)
    catalog.create_table("shop.large", "id BIGINT, total DOUBLE")
    rides = catalog.create_table("shop.rides", "id BIGINT", connector=HTTPSSE("http://unused/"))
    app = Application("unused:9092", consumer_group="shop", catalog=catalog)
    orders = app.dataframe("shop.orders")
    orders[orders["total"] > 10].to_table("shop.large")
    app.dataframe(rides).apply(lambda row: {"id": -row["id"]}).to_table("shop.large")
    # Not even there does the catalogue need a broker.
    assert (rides.usages(), rides.schema.names) == ([], ("id",))
    driver = TopologyTestDriver(app)
    large = driver.table("shop.large")
    with large.subscribe(start="latest") as stream:
        token = driver.table("shop.orders").append([{"id": number, "total": 10.0 * number} for number in range(4)])
        assert sum(token.values()) == 4
        driver.pipe("shop.orders", [9, 90.0], key=9)
        # Its source would bring it.
        driver.table("shop.rides").append([{"id": 5}])
        assert [record.row["id"] for record in stream.poll(1.0)] == [2, 3, 9, -5]
    assert large.scan(["id"]).to_arrow().to_pylist() == [{"id": number} for number in (2, 3, 9, -5)]
    assert driver.catalog.table("shop.orders").scan().count() == 5
    with driver.table("shop.orders").writer(id="loader") as writer:
        writer.append({"id": 7, "total": 70.0})
        assert large.scan().count() == 4
        writer.checkpoint("done")
        assert large.scan().count() == 5


@GUARANTEES
def test_upserts_and_deletes_are_processed(guarantee: Any) -> None:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_table(
        "people", "country STRING, id BIGINT, name STRING, PRIMARY KEY (country, id)", num_partitions=2
    )
    app = Application("unused:9092", consumer_group="people", catalog=catalog, processing_guarantee=guarantee)
    seen: list[Any] = []
    app.dataframe("default.people").update(lambda row, key, *_: seen.append((key, row)), metadata=True)
    driver = TopologyTestDriver(app)
    people = driver.table("people")
    ann = {"country": "FR", "id": 1, "name": "Ann"}
    people.upsert([ann, ["FR", 2, None]])
    token = people.delete([("FR", 2)])
    assert people.offsets().covers(token)
    assert seen == [(("FR", 1), ann), (("FR", 2), {"country": "FR", "id": 2, "name": None}), (("FR", 2), None)]
    with people.writer(id="loader") as writer:
        writer.write([{"delete": ann}, {"update": ann | {"name": "Anna"}}])
        assert len(seen) == 3
        writer.checkpoint("done")
    assert seen[3:] == [(("FR", 1), None), (("FR", 1), ann | {"name": "Anna"})]
    assert list(people.scan().rows()) == [ann | {"name": "Anna"}]


def test_tables_that_the_application_does_not_use_are_there_too() -> None:
    driver, _ = make()
    tables = driver._app.catalog
    tables.add("shop.other", "id BIGINT")  # type: ignore[attr-defined]
    append(driver.table("shop.other"), {"id": 1})
    assert read(driver.table("shop.other")) == [(0, 0, {"id": 1})]
