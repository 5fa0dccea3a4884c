"""Rows as of a time: `keep=` of tables, and joins with former rows."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.testing import TopologyTestDriver
from streamrt.windows import Count
from tests.support import LONG
from tests.unit.table_homes import Tables

pytestmark = pytest.mark.usefixtures("processing_mode")

CASES = 200 if LONG else 2
RECORDS = 100
KEEP_MS = 40


def make_app(tables: Tables | None = None, **settings: Any) -> Application:
    return Application("unused:9092", consumer_group="shop", catalog=tables or Tables(), **settings)  # type: ignore[arg-type]


def make_topics(app: Application, *names: str) -> list[Any]:
    return [app.topic(name, key_deserializer="str", key_serializer="str") for name in names]


class Model:
    """All records of a table, and the row of a key as of a time by looking through them."""

    def __init__(self) -> None:
        self.records: list[tuple[str, int, Any]] = []
        self.now = 0

    def upsert(self, key: str, row: Any, timestamp: int) -> None:
        self.now = max(self.now, timestamp)
        if timestamp >= self.now - KEEP_MS:
            self.records.append((key, timestamp, row))

    def row_as_of(self, key: str, timestamp: int, convert: Callable[[Any], Any] = lambda row: row) -> Any:
        self.now = max(self.now, timestamp)
        if timestamp < self.now - KEEP_MS:
            return None
        rows = sorted(
            (each for each in self.records if each[0] == key and each[1] <= timestamp), key=lambda each: each[1]
        )
        return convert(rows[-1][2]) if rows and rows[-1][2] is not None else None


def convert_row(row: dict[str, Any]) -> Any:
    return {"n": row["n"], "twice": row["n"] * 2, "last": True} if row["n"] < 4 else None


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("seed", range(CASES))
def test_rows_are_those_of_the_time(seed: int, guarantee: str) -> None:
    dice = random.Random(seed)
    app = make_app(processing_guarantee=guarantee)
    stream, users = make_topics(app, "stream", "users")
    table, sdf = app.table(users, keep=timedelta(milliseconds=KEEP_MS)), app.dataframe(stream)
    chosen = table[table["n"] < 4]
    chosen["twice"] = chosen["n"] * 2
    for name, rows in (("plain", table), ("chosen", chosen.apply(lambda row: {**row, "last": True}))):
        sdf.join_asof(rows, how="left", on_merge=lambda left, right: [left, right], name=name).to_topic(app.topic(name))
    table.to_stream().to_topic(app.topic("changes", key_serializer="str", key_deserializer="str"))
    driver, model = TopologyTestDriver(app), Model()
    expected: dict[str, list[Any]] = {"plain": [], "chosen": []}
    now, present, found = 0, {}, {}
    for number in range(RECORDS):
        now += dice.choice((0, 0, 1, 2, 9))
        key, timestamp = dice.choice("ab"), max(0, now - dice.choice((0, 0, 0, 1, 3, 15, 60)))
        if dice.random() < 0.5:
            row = None if dice.random() < 0.2 else {"n": dice.randrange(3, 6)}
            driver.pipe("users", row, key=key, timestamp=timestamp)
            model.upsert(key, row, timestamp)
            present[key] = row
        else:
            driver.pipe("stream", number, key=key, timestamp=timestamp)
            expected["plain"].append([number, model.row_as_of(key, timestamp)])
            expected["chosen"].append([number, model.row_as_of(key, timestamp, convert_row)])
        if dice.random() < 0.05:
            driver.stop()
            driver.start()
    for name, pairs in expected.items():
        assert [record.value for record in driver.read(name)] == pairs
        assert any(row is not None for _, row in pairs)
    # The present row is the last one of its partition, whatever the times are.
    for record in driver.read("changes"):
        found[record.key] = record.value
    assert {key: row for key, row in found.items() if row} == {key: row for key, row in present.items() if row}


def test_a_row_that_comes_again_holds_from_then_on() -> None:
    app = make_app()
    stream, users = make_topics(app, "stream", "users")
    app.dataframe(stream).join_asof(app.table(users)).to_topic(app.topic("joined"))
    driver = TopologyTestDriver(app)
    # The third record repeats the present row, which is not the last one in the order of time.
    for name, timestamp in (("ann", 5), ("anna", 3), ("anna", 8)):
        driver.pipe("users", {"name": name}, key="a", timestamp=timestamp)
    for timestamp in (4, 6, 9):
        driver.pipe("stream", {}, key="a", timestamp=timestamp)
    assert [record.value["name"] for record in driver.read("joined")] == ["anna", "ann", "anna"]


def test_tables_with_a_primary_key_and_of_streams() -> None:
    tables = Tables()
    tables.add("shop.prices", "id BIGINT, price BIGINT, PRIMARY KEY (id)")
    app = make_app(tables=tables)
    orders = app.dataframe(app.topic("orders")).group_by("id", key_serializer="json", key_deserializer="json")
    prices = app.table("shop.prices", keep=1_000)
    orders.join_asof(prices, on_merge="keep-left").to_topic(app.topic("priced", key_serializer="json"))
    places = app.dataframe(app.topic("positions")).group_by("id").as_table(keep=timedelta(seconds=1))
    seen = app.dataframe(app.topic("sights")).group_by("id").join_asof(places, on_merge="keep-left")
    seen.to_topic(app.topic("seen", key_serializer="json"))
    driver = TopologyTestDriver(app)
    for price, timestamp in ((5, 100), (6, 200)):
        driver.pipe("shop.prices", {"id": 1, "price": price}, key=1, timestamp=timestamp)
        driver.pipe("positions", {"id": 1, "place": price}, timestamp=timestamp)
    for timestamp in (150, 250):
        driver.pipe("orders", {"id": 1}, timestamp=timestamp)
        driver.pipe("sights", {"id": 1}, timestamp=timestamp)
    assert [record.value["price"] for record in driver.read("priced")] == [5, 6]
    assert [record.value["place"] for record in driver.read("seen")] == [5, 6]


def test_results_of_joins_and_aggregates_need_a_grace() -> None:
    app = make_app()
    stream, users, log = make_topics(app, "stream", "users", "log")
    counts = app.dataframe(log).agg(n=Count())
    app.dataframe(stream).join_asof(
        app.table(users, keep=1_000).join(counts), grace_ms=5_000, on_merge="keep-left"
    ).to_topic(app.topic("joined"))
    driver = TopologyTestDriver(app)
    driver.pipe("users", {"name": "ann"}, key="a", timestamp=1)
    for timestamp in (2, 6):
        driver.pipe("log", {}, key="a", timestamp=timestamp)
    driver.pipe("stream", {}, key="a", timestamp=4)
    assert [record.value for record in driver.read("joined")] == [{"name": "ann", "n": 1}]


def test_a_table_that_only_such_joins_use(caplog: pytest.LogCaptureFixture) -> None:
    app = make_app(loglevel=None)
    stream, users = make_topics(app, "stream", "users")
    table = app.table(users, keep=1_000)
    named = table[["name"]].apply(lambda row: {"name": row["name"].title()})
    app.dataframe(stream).join_asof(named).to_topic(app.topic("joined"))
    driver = TopologyTestDriver(app)
    driver.pipe("users", {"name": "ann", "age": 7}, key="a", timestamp=1)
    driver.pipe("stream", {}, key="a", timestamp=1)
    assert [record.value for record in driver.read("joined")] == [{"name": "Ann"}]
    assert "not used" not in caplog.text
    # It keeps no present rows.
    stores = [store.name for node in definition_of(app).builder.build().nodes for store in node.operator.stores()]
    assert stores == ["join_asof"]
    # Later uses see the same rows.
    app = make_app()
    stream, users = make_topics(app, "stream", "users")
    adults = app.table(users).filter(lambda row: row["age"] > 5)
    app.dataframe(stream).join_asof(adults).to_topic(app.topic("joined"))
    adults.to_stream().to_topic(app.topic("adults"))
    driver = TopologyTestDriver(app)
    driver.pipe("users", {"name": "ann", "age": 7}, key="a", timestamp=1)
    driver.pipe("users", {"name": "bob", "age": 3}, key="b", timestamp=1)
    assert [record.value["name"] for record in driver.read("adults")] == ["ann"]


def test_what_is_refused() -> None:
    app = make_app()
    stream, users = make_topics(app, "stream", "users")
    table, sdf = app.table(users, keep=1_000), app.dataframe(stream)
    for call, kind, text in (
        (lambda: app.table(users, keep=0), ArgumentValueError, r"table\(keep=...\) must be 1 ms or more"),
        (lambda: app.table(users, keep=timedelta.max), ArgumentValueError, r"table\(keep=...\) must be \d+ ms or less"),
        (lambda: app.table(users, keep="1d"), ArgumentTypeError, r"table\(keep=...\) must be an int of milliseconds"),  # type: ignore[call-overload]
        (lambda: app.table("shop.x", everywhere=True, keep=5), ArgumentValueError, "present rows only"),  # type: ignore[call-overload]
        (lambda: sdf.as_table(keep=-1), ArgumentValueError, r"as_table\(keep=...\) must be 1 ms or more"),
        (lambda: (sdf.join_asof(sdf.as_table()), sdf.as_table()), InvalidOperationError, r"already has as_table\(\)"),
        (lambda: sdf.join_asof(table, grace_ms=5), ArgumentValueError, "leave one of the two out"),
        (lambda: sdf.join_asof(make_app().table("users")), ArgumentTypeError, "table"),
        (lambda: sdf.join_asof(make_app().table(users)), ArgumentValueError, "of another application"),
    ):
        with pytest.raises(kind, match=text):
            call()
