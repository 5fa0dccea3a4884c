"""Tables in applications: rows by key, what is computed from them, and where they are written."""

import datetime
from decimal import Decimal
from typing import Any

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidOperationError,
    ProcessingError,
    ProducerError,
)
from streamrt.kafka import TopicConfig
from streamrt.kafka.partitioner import partition_for
from streamrt.runtime.driver.observation.table_usage import TableUsage
from streamrt.sinks import ListSink
from streamrt.testing import TopologyTestDriver
from streamrt.windows import Collect, Count, Max, Sum
from tests.unit.table_homes import Tables

pytestmark = pytest.mark.usefixtures("processing_mode")

CUSTOMERS = "id BIGINT, name STRING, age BIGINT, PRIMARY KEY (id)"


def make_app(tables: Tables | None = None, **settings: Any) -> Application:
    return Application("unused:9092", consumer_group="shop", catalog=tables or Tables(), **settings)  # type: ignore[arg-type]


def make_topics(app: Application, *names: str) -> list[Any]:
    return [app.topic(name, key_deserializer="str", key_serializer="str") for name in names]


def values(driver: TopologyTestDriver, topic: str) -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in driver.read(topic)]


def test_changes_of_rows() -> None:
    app = make_app()
    (users,) = make_topics(app, "users")
    table = app.table(users)
    table.to_stream().to_topic(app.topic("new"))
    table.to_stream("both").to_topic(app.topic("both"))
    table.to_stream("rows").to_topic(app.topic("rows"))
    driver = TopologyTestDriver(app)
    for value in ({"n": 1}, {"n": 1}, {"n": 2}, None, None, {"n": 3}):
        driver.pipe("users", value, key="ann")
    assert [value for _, value in values(driver, "new")] == [{"n": 1}, {"n": 2}, None, {"n": 3}]
    assert [value for _, value in values(driver, "both")] == [
        {"op": "+I", "before": None, "after": {"n": 1}},
        {"op": "+U", "before": {"n": 1}, "after": {"n": 2}},
        {"op": "-D", "before": {"n": 2}, "after": None},
        {"op": "+I", "before": None, "after": {"n": 3}},
    ]
    kinds = [(value["_change_type"], value["n"]) for _, value in values(driver, "rows")]
    assert kinds == [("+I", 1), ("-U", 1), ("+U", 2), ("-D", 2), ("+I", 3)]


def test_rows_without_a_key_are_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    app = make_app(loglevel=None)
    app.table(app.topic("users")).to_stream().to_topic(app.topic("new"))
    driver = TopologyTestDriver(app)
    driver.pipe("users", {"n": 1}, key=None)
    assert values(driver, "new") == []
    assert "skipped a record without a key" in caplog.text


def test_filters_and_functions_follow_the_rows() -> None:
    app = make_app()
    (users,) = make_topics(app, "users")
    table = app.table(users)
    adults = table[table["age"] >= 18]
    adults["next"] = adults["age"] + 1
    adults["kind"] = "adult"
    named = adults[["name", "next", "kind"]].apply(lambda row: {**row, "name": row["name"].title()})
    named.filter(lambda row: row["name"] != "Hidden").to_stream("both").to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    for row in (
        {"name": "ann", "age": 17},
        {"name": "ann", "age": 18},
        {"name": "ann", "age": 18, "more": 1},
        {"name": "anna", "age": 18},
        {"name": "hidden", "age": 18},
        {"name": "anna", "age": 5},
    ):
        driver.pipe("users", row, key="a")
    first, second = ({"name": name, "next": 19, "kind": "adult"} for name in ("Ann", "Anna"))
    assert [value for _, value in values(driver, "out")] == [
        {"op": "+I", "before": None, "after": first},
        {"op": "+U", "before": first, "after": second},
        {"op": "-D", "before": second, "after": None},
    ]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [{"l": 1, "r": 1}, {"l": 2, "r": 1}, None, None]),
        ("left", [{"l": 1}, {"l": 1, "r": 1}, {"l": 2, "r": 1}, {"l": 2}, None, {"l": 3}]),
        ("right", [{"l": 1, "r": 1}, {"l": 2, "r": 1}, None, {"r": 9}]),
        ("outer", [{"l": 1}, {"l": 1, "r": 1}, {"l": 2, "r": 1}, {"l": 2}, None, {"r": 9}, {"l": 3, "r": 9}]),
    ],
)
def test_joined_rows(how: Any, expected: list[Any]) -> None:
    app = make_app()
    left, right = map(app.table, make_topics(app, "left", "right"))
    left.join(right, how).to_stream().to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    driver.pipe("left", {"l": 1}, key="a", timestamp=10)
    driver.pipe("right", {"r": 1}, key="a", timestamp=11)
    driver.pipe("left", {"l": 2}, key="a", timestamp=12)
    driver.pipe("right", None, key="a", timestamp=13)
    driver.pipe("left", None, key="a", timestamp=14)
    if how in ("right", "outer"):
        driver.pipe("right", {"r": 9}, key="b", timestamp=15)
    if how in ("left", "outer"):
        driver.pipe("left", {"l": 3}, key="b", timestamp=16)
    found = [value for _, value in values(driver, "out")]
    assert found == ([*expected[:3]] if how == "inner" else expected)


def test_a_joined_row_has_the_later_time_of_both() -> None:
    app = make_app()
    left, right = map(app.table, make_topics(app, "left", "right"))
    left.join(right).to_stream().to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    driver.pipe("right", {"r": 1}, key="a", timestamp=50)
    driver.pipe("left", {"l": 1}, key="a", timestamp=20)
    assert [record.timestamp for record in driver.read("out")] == [50]


def test_columns_of_the_key_do_not_clash() -> None:
    tables = Tables()
    tables.add("shop.customers", CUSTOMERS)
    tables.add("shop.balances", "id BIGINT, balance DOUBLE, PRIMARY KEY (id)")
    tables.add("shop.accounts", "id BIGINT, name STRING, age BIGINT, balance DOUBLE, PRIMARY KEY (id)")
    app = make_app(tables)
    app.table("shop.customers").join(app.table("shop.balances"), "left").to_table("shop.accounts")
    driver = TopologyTestDriver(app)
    driver.pipe("shop.customers", {"id": 1, "name": "ann", "age": 7}, key=1)
    driver.pipe("shop.balances", {"id": 1, "balance": 7.5}, key=1)
    driver.pipe("shop.customers", None, key=1)
    assert [(record.raw_key, record.value) for record in driver.read("shop.accounts")] == [
        (b"1", {"id": 1, "name": "ann", "age": 7, "balance": None}),
        (b"1", {"id": 1, "name": "ann", "age": 7, "balance": 7.5}),
        (b"1", None),
    ]
    usage = TableUsage.of(definition_of(app))
    assert (usage.reads, usage.writes) == (("shop.balances", "shop.customers"), ("shop.accounts",))


def test_columns_of_a_foreign_key_with_the_name_of_the_key_do_not_clash() -> None:
    tables = Tables()
    tables.add("shop.orders", "id BIGINT, customer_id BIGINT, PRIMARY KEY (id)")
    tables.add("shop.customers", "customer_id BIGINT, name STRING, PRIMARY KEY (customer_id)")
    tables.add("shop.clicks", "customer_id BIGINT, page STRING", key=["customer_id"])
    app = make_app(tables)
    customers, clicks = app.table("shop.customers"), app.dataframe("shop.clicks")
    app.table("shop.orders").join(customers, on="customer_id").to_stream().to_topic(
        app.topic("orders", key_serializer="json")
    )
    clicks.join(customers).to_topic(app.topic("by-key", key_serializer="json"))
    clicks.join(customers, on="customer_id").to_topic(app.topic("by-column", key_serializer="json"))
    driver = TopologyTestDriver(app)
    driver.table("shop.customers").upsert([[7, "ann"]])
    driver.table("shop.orders").upsert([[1, 7]])
    driver.table("shop.clicks").append([[7, "/"]])
    assert [value for _, value in values(driver, "orders")] == [{"id": 1, "customer_id": 7, "name": "ann"}]
    for topic in ("by-key", "by-column"):
        assert [value for _, value in values(driver, topic)] == [{"customer_id": 7, "page": "/", "name": "ann"}]


def test_columns_of_both_sides_clash() -> None:
    app = make_app()
    left, right = map(app.table, make_topics(app, "left", "right"))
    left.join(right).to_stream().to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    driver.pipe("left", {"n": 1}, key="a")
    with pytest.raises(ProcessingError, match="'n'"):
        driver.pipe("right", {"n": 1}, key="a")


def test_aggregates_of_a_stream() -> None:
    tables = Tables()
    tables.add("shop.totals", "customer STRING, total BIGINT, n BIGINT, PRIMARY KEY (customer)")
    app = make_app(tables)
    orders = app.dataframe(app.topic("orders", key_serializer="json"))
    totals = orders.group_by("customer").agg(total=Sum("amount"), n=Count())
    totals[totals["total"] > 100].to_table("shop.totals").to_stream("both").to_topic(app.topic("changes"))
    driver = TopologyTestDriver(app)
    for customer, amount in (("ann", 60), ("bob", 30), ("ann", 50), ("bob", 80), ("ann", -20)):
        driver.pipe("orders", {"customer": customer, "amount": amount})
    changes = [(value["op"], value["before"], value["after"]) for _, value in values(driver, "changes")]
    ann, bob = {"customer": "ann", "total": 110, "n": 2}, {"customer": "bob", "total": 110, "n": 2}
    assert changes == [("+I", None, ann), ("+I", None, bob), ("-D", ann, None)]
    assert [(record.raw_key, record.value) for record in driver.read("shop.totals")] == [
        (b'"ann"', ann),
        (b'"bob"', bob),
        (b'"ann"', None),
    ]


def test_the_columns_of_a_group_that_a_function_makes_have_its_name() -> None:
    app = make_app()
    days = app.dataframe(app.topic("orders", key_serializer="json")).group_by(lambda row: row["at"][:10], name="day")
    days.agg(worst=Max("delay")).to_stream().to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    driver.pipe("orders", {"at": "2026-01-01T10:00", "delay": 5})
    driver.pipe("orders", {"at": "2026-01-01T11:00", "delay": 3})
    assert [value for _, value in values(driver, "out")] == [{"day": "2026-01-01", "worst": 5}]


def test_groups_of_several_columns() -> None:
    app = make_app()
    totals = app.dataframe(app.topic("orders", key_serializer="json")).group_by(["country", "city"]).agg(n=Count())
    totals.to_stream().to_topic(app.topic("out", key_serializer="json"))
    driver = TopologyTestDriver(app)
    driver.pipe("orders", {"country": "FR", "city": "Lyon"})
    driver.pipe("orders", {"country": "FR", "city": None})
    assert [value for _, value in values(driver, "out")] == [
        {"country": "FR", "city": "Lyon", "n": 1},
        {"country": "FR", "city": None, "n": 1},
    ]


def test_groups_of_the_records_own_keys_have_no_column_of_the_key() -> None:
    app = make_app()
    app.dataframe(*make_topics(app, "orders")).agg(n=Count()).to_stream().to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    driver.pipe("orders", {}, key="a")
    driver.pipe("orders", {}, key="a")
    assert values(driver, "out") == [(b"a", {"n": 1}), (b"a", {"n": 2})]


def test_a_dataframe_and_a_table_of_one_topic_share_its_records() -> None:
    app = make_app()
    (users,) = make_topics(app, "users")
    app.dataframe(users).to_topic(app.topic("stream"))
    app.table(users).to_stream().to_topic(app.topic("first"))
    second = app.table(users)
    second["x"] = 1
    second.to_stream().to_topic(app.topic("second"))
    app.table(users).to_stream().to_topic(app.topic("third"))
    driver = TopologyTestDriver(app)
    driver.pipe("users", {"n": 1}, key="a")
    assert [values(driver, name)[0][1] for name in ("stream", "first", "second", "third")] == [
        {"n": 1},
        {"n": 1},
        {"n": 1, "x": 1},
        {"n": 1},
    ]
    with pytest.raises(InvalidOperationError, match="already has a dataframe"):
        app.dataframe(users)


def test_rows_keep_the_types_of_their_columns() -> None:
    tables = Tables()
    columns = "id BIGINT, day DATE, at TIMESTAMP, amount DECIMAL(10, 2), data BINARY, PRIMARY KEY (id)"
    tables.add("shop.typed", columns)
    tables.add("shop.copy", columns)
    app = make_app(tables)
    seen: list[Any] = []
    typed = app.table("shop.typed").to_table("shop.copy")
    typed.to_stream("both").update(lambda change: seen.append(change["before"]))
    driver = TopologyTestDriver(app)
    row = {
        "id": 1,
        "day": datetime.date(2026, 1, 2),
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
        "amount": Decimal("1.50"),
        "data": b"\x00\xff",
    }
    driver.pipe("shop.typed", row, key=1)
    driver.pipe("shop.typed", None, key=1)
    assert seen == [None, row]
    assert [record.value is None for record in driver.read("shop.copy")] == [False, True]


def test_upserts_of_a_stream() -> None:
    tables = Tables()
    tables.add("shop.customers", CUSTOMERS)
    app = make_app(tables)
    frame = app.dataframe(app.topic("in", key_deserializer="int", key_serializer="int"))
    frame.to_table("shop.customers", key="id")
    driver = TopologyTestDriver(app)
    driver.pipe("in", {"id": 1, "name": "ann", "age": 7}, key=5)
    driver.pipe("in", None, key=1)
    assert [(record.raw_key, record.value is None) for record in driver.read("shop.customers")] == [
        (b"1", False),
        (b"1", True),
    ]
    with pytest.raises(ProducerError, match="'id'"):
        driver.pipe("in", {"name": "ann", "age": 7}, key=5)


def test_the_primary_key_of_a_row_stays() -> None:
    tables = Tables()
    tables.add("shop.customers", CUSTOMERS)
    app = make_app(tables)
    app.table(*make_topics(app, "in")).to_table("shop.customers")
    driver = TopologyTestDriver(app)
    driver.pipe("in", {"id": 1, "name": "ann", "age": 7}, key="x")
    with pytest.raises(ProcessingError, match="the primary key of a row changed"):
        driver.pipe("in", {"id": 2, "name": "ann", "age": 7}, key="x")


@pytest.mark.parametrize("settings", [{"on_producer_error": lambda *_: True}, {"on_error": {"produce": "skip"}}])
def test_rows_that_were_skipped_are_not_in_the_table(settings: Any) -> None:
    tables = Tables()
    tables.add("shop.customers", CUSTOMERS)
    app = make_app(tables, **settings)
    app.table(*make_topics(app, "in")).to_table("shop.customers")
    driver = TopologyTestDriver(app)
    unfit, ann = {"name": "ann", "age": 7}, {"id": 1, "name": "ann", "age": 7}
    # Without a primary key, and so never written.
    driver.pipe("in", unfit, key="x")
    driver.pipe("in", {**unfit, "age": 8}, key="x")
    assert values(driver, "shop.customers") == []
    driver.pipe("in", ann, key="x")
    assert values(driver, "shop.customers") == [(1, ann)]
    # The table keeps the former row.
    driver.pipe("in", {**ann, "age": "old"}, key="x")
    assert values(driver, "shop.customers") == []
    driver.pipe("in", None, key="x")
    assert values(driver, "shop.customers") == [(1, None)]
    driver.pipe("in", unfit, key="y")
    driver.pipe("in", None, key="y")
    assert values(driver, "shop.customers") == []
    driver.pipe("in", ann, key="z")
    with pytest.raises(ProcessingError, match="the primary key of a row changed, or became null"):
        driver.pipe("in", unfit, key="z")


def test_sinks_get_rows_with_the_kind_of_their_change() -> None:
    app = make_app()
    sink = ListSink()
    app.table(*make_topics(app, "in")).sink(sink)
    driver = TopologyTestDriver(app)
    for value in ({"n": 1}, {"n": 2}, None):
        driver.pipe("in", value, key="a")
    assert [(value["_change_type"], value["n"]) for value in sink] == [
        ("+I", 1),
        ("-U", 1),
        ("+U", 2),
        ("-D", 2),
    ]


@pytest.mark.parametrize("partitions", [1, 2])
def test_rows_joined_by_a_foreign_key(partitions: int) -> None:
    tables = Tables()
    tables.add("shop.orders", "id BIGINT, customer BIGINT, PRIMARY KEY (id)", num_partitions=partitions)
    tables.add("shop.customers", CUSTOMERS, num_partitions=3 - partitions)
    app = make_app(tables)
    orders, customers = app.table("shop.orders"), app.table("shop.customers")
    joined = orders.join(
        customers[["id", "name"]], on="customer", on_merge=lambda order, other: [order["id"], other["name"]]
    )
    joined.to_stream("both").to_topic(app.topic("out", key_serializer="json"))
    driver = TopologyTestDriver(app)

    def pipe(table: str, key: int, row: Any) -> list[Any]:
        number = partition_for(str(key).encode(), driver.table(table).info.num_partitions or 1)
        driver.pipe(table, row, key=key, partition=number)
        return [(value["before"], value["after"]) for _, value in values(driver, "out")]

    def order(number: int, customer: int | None) -> list[Any]:
        return pipe("shop.orders", number, {"id": number, "customer": customer})

    def customer(number: int, name: str) -> list[Any]:
        return pipe("shop.customers", number, {"id": number, "name": name, "age": 5})

    assert order(1, 7) == []
    assert customer(7, "ann") == [(None, [1, "ann"])]
    assert order(2, 7) == [(None, [2, "ann"])]
    assert sorted(customer(7, "anna")) == [([1, "ann"], [1, "anna"]), ([2, "ann"], [2, "anna"])]
    assert customer(8, "bob") == []
    assert order(1, 8) == [([1, "anna"], [1, "bob"])]
    assert customer(7, "anne") == [([2, "anna"], [2, "anne"])]
    assert order(1, None) == [([1, "bob"], None)]
    assert pipe("shop.customers", 7, None) == [([2, "anne"], None)]
    assert pipe("shop.orders", 2, None) == []
    assert customer(7, "ann") == []


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_table_is_joined_with_many_others(partitions: int) -> None:
    """Names of internal topics and stores have all groupings above, and must not be longer than Kafka allows."""
    tables, others = Tables(), [f"customer_segment_{number}" for number in range(5)]
    columns = ", ".join(f"{other}_id BIGINT" for other in others)
    tables.add("shop.orders", f"id BIGINT, {columns}, PRIMARY KEY (id)", num_partitions=partitions)
    app = make_app(tables)
    joined = app.table("shop.orders")
    for other in others:
        tables.add(f"shop.{other}", f"id BIGINT, {other} STRING, PRIMARY KEY (id)", num_partitions=partitions)
        joined = joined.join(app.table(f"shop.{other}"), on=f"{other}_id", on_merge="keep-left")
    counts = joined.group_by(others[-1]).agg(orders=Count())
    counts.join(joined.group_by(others[-1], name="again").agg(ids=Sum("id"))).to_stream().to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    for other in others:
        driver.table(f"shop.{other}").upsert([{"id": 1, other: "one"}, {"id": 2, other: "two"}])
    driver.table("shop.orders").upsert([{"id": number, **{f"{each}_id": 2 for each in others}} for number in (1, 5)])
    found = [value for _, value in values(driver, "out")]
    assert found[-1] == {others[-1]: "two", "orders": 2, "ids": 6}


def test_a_row_joined_by_a_foreign_key_has_the_later_time_of_its_two_rows() -> None:
    app = make_app()
    orders, customers = make_topics(app, "orders", "customers")
    joined = app.table(orders).join(app.table(customers), "left", on="customer")
    joined.to_stream().to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)

    def times(topic: Any, key: str, row: Any, time: int) -> list[int]:
        driver.pipe(topic, row, key=key, timestamp=time)
        return [record.timestamp for record in driver.read("out")]

    assert times(customers, "ann", {"name": "Ann"}, 5) == []
    assert times(orders, "1", {"customer": "ann", "total": 1}, 10) == [10]
    # The former order no longer counts: its row, and its foreign key, were at 10.
    assert times(orders, "1", {"customer": "ann", "total": 2}, 7) == [7]
    assert times(orders, "1", {"customer": "ann", "total": 3}, 3) == [5]
    assert times(customers, "ann", {"name": "Anna"}, 2) == [3]
    assert times(customers, "ann", None, 4) == [4]


def test_a_foreign_key_of_several_columns_with_a_null_matches_nothing() -> None:
    app = make_app()
    left = app.table(*make_topics(app, "left"))
    right = app.dataframe(app.topic("right")).group_by(["country", "city"]).as_table()
    left.join(right, "left", on=["land", "town"]).to_stream().to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    driver.pipe("right", {"country": "FR", "city": "Lyon", "n": 1})
    driver.pipe("right", {"country": "FR", "city": None, "n": 2})
    driver.pipe("left", {"land": "FR", "town": "Lyon"}, key="a")
    driver.pipe("left", {"land": "FR", "town": None}, key="a")
    assert [value for _, value in values(driver, "out")] == [
        {"land": "FR", "town": "Lyon", "country": "FR", "city": "Lyon", "n": 1},
        {"land": "FR", "town": None},
    ]


@pytest.mark.rows("FL-177")
@pytest.mark.parametrize("partitions", [1, 2])
def test_records_joined_with_present_rows(partitions: int) -> None:
    tables = Tables()
    tables.add("shop.customers", CUSTOMERS, num_partitions=partitions)
    app = make_app(tables)
    orders = app.dataframe(app.topic("orders", config=TopicConfig(3, 1)))
    customers = app.table("shop.customers")[["id", "name"]]
    for how in ("inner", "left"):
        joined = orders.join(customers, on="customer", how=how, name=how, on_merge="keep-left")
        joined.to_topic(app.topic(how, key_serializer="json"))
    driver = TopologyTestDriver(app)

    def order(customer: int | None, partition: int = 0) -> list[list[tuple[Any, Any]]]:
        driver.pipe("orders", {"customer": customer}, partition=partition)
        return [[(key, value.get("name")) for key, value in values(driver, how)] for how in ("inner", "left")]

    def customer(number: int, row: Any) -> None:
        driver.pipe("shop.customers", row, key=number, partition=partition_for(str(number).encode(), partitions))

    assert order(7) == [[], [(b"7", None)]]
    customer(7, {"id": 7, "name": "ann", "age": 5})
    assert order(7, 1) == [[(b"7", "ann")], [(b"7", "ann")]]
    customer(7, {"id": 7, "name": "anna", "age": 5})
    assert order(7, 2) == [[(b"7", "anna")], [(b"7", "anna")]]
    assert order(None) == [[], [(None, None)]]
    customer(7, None)
    assert order(7) == [[], [(b"7", None)]]


def test_records_joined_by_their_own_key_and_with_rows_of_their_time() -> None:
    app = make_app()
    stream, users = make_topics(app, "stream", "users")
    sdf, table = app.dataframe(stream), app.table(users)
    sdf.join(table).to_topic(app.topic("present"))
    sdf.join_asof(table, how="left").to_topic(app.topic("then"))
    driver = TopologyTestDriver(app)
    driver.pipe("users", {"name": "ann"}, key="a", timestamp=1_000)
    driver.pipe("users", {"name": "anna"}, key="a", timestamp=5_000)
    for time in (500, 1_000, 6_000):
        driver.pipe("stream", {"n": time}, key="a", timestamp=time)
    driver.pipe("users", None, key="a", timestamp=9_000)
    driver.pipe("stream", {"n": 9_500}, key="a", timestamp=9_500)
    assert [value["name"] for _, value in values(driver, "present")] == ["anna"] * 3
    assert [value.get("name") for _, value in values(driver, "then")] == [None, "ann", "anna", None]


def test_what_is_refused() -> None:
    tables = Tables()
    tables.add("shop.log", "id BIGINT")
    app = make_app(tables)
    users, others, stream = make_topics(app, "users", "others", "stream")
    table, other, sdf = app.table(users), app.table(others), app.dataframe(stream)
    foreign = make_app().table(users)
    for call, kind, text in (
        (lambda: app.table("shop.log"), InvalidOperationError, "has none: dataframe\\(\\)"),
        (lambda: app.table(5), ArgumentTypeError, "table\\(\\) needs a table"),  # type: ignore[call-overload]
        (lambda: table.join(sdf), ArgumentTypeError, "needs another table"),  # type: ignore[arg-type]
        (lambda: sdf.concat(table), ArgumentValueError, "call its to_stream\\(\\)"),
        (lambda: sdf.join(table, within=5), ArgumentValueError, "is for the records of another stream"),
        (lambda: sdf.join(table, on=("a", "b")), ArgumentTypeError, "the table's key"),
        (lambda: sdf.join(table, how="outer"), ArgumentValueError, "of a stream with a table"),
        (lambda: sdf.join(foreign), ArgumentValueError, "another application"),
        (lambda: table.join(foreign), ArgumentValueError, "another application"),
        (lambda: table.join(other, "outer", on="id"), ArgumentValueError, "rows without a key of this table"),
        (lambda: table.join(other, on=len), ArgumentValueError, "needs a name"),
        (lambda: table.join(other, on=[]), ArgumentTypeError, "names of columns"),
        (lambda: table.join(other, on=5), ArgumentTypeError, "got int"),  # type: ignore[arg-type]
        (lambda: table.join(other, "cross"), ArgumentValueError, "how"),  # type: ignore[arg-type]
        (lambda: table.to_table("shop.log"), InvalidOperationError, "is a log"),
        (lambda: table.to_stream("old"), ArgumentValueError, "changes"),  # type: ignore[arg-type]
        (lambda: table[other["n"] > 1], ArgumentValueError, "its own columns"),
        (lambda: table[5], ArgumentTypeError, "indexed by"),  # type: ignore[call-overload]
        (lambda: sdf.agg(), ArgumentValueError, "at least one aggregation"),
        (lambda: sdf.agg(all=Collect()), ArgumentTypeError, "for ever"),
        (lambda: bool(table), InvalidOperationError, "truth value"),
        (lambda: list(table), InvalidOperationError, "iterated"),
        (lambda: table.sink(5), ArgumentTypeError, "BaseSink"),  # type: ignore[arg-type]
    ):
        with pytest.raises(kind, match=text):
            call()
    sdf.agg(n=Count())
    with pytest.raises(InvalidOperationError, match=r"agg\('\.\.\.', total=\.\.\.\)"):
        sdf.agg(n=Count())
    sdf.agg("again", n=Count())
    table.join(other)
    with pytest.raises(InvalidOperationError, match=r"join\(\.\.\., name='\.\.\.'\)"):
        table.join(other)
    table.join(other, name="again")


def test_state_queries_show_rows() -> None:
    app = make_app()
    left, right = (app.table(topic) for topic in make_topics(app, "left", "right"))
    left.join(right, how="outer", on_merge="keep-left").to_stream().to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe("left", {"a": 1, "at": datetime.date(2026, 1, 2).isoformat()}, key="ann", timestamp=5)
        driver.pipe("right", {"b": 2}, key="ann", timestamp=6)
        row = {"a": 1, "at": "2026-01-02"}
        assert driver.query_state("table", "ann", topic="left").get("row") == row
        answer = driver.query_state("join", "ann")
        assert (answer.get("left"), answer.get("right")) == (row, {"b": 2})
