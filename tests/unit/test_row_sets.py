"""Unions, differences and keys of rows that have none, over random changes, are what a batch gives."""

import datetime
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.kafka import TopicConfig
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing import TopologyTestDriver
from streamrt.windows import Count
from tests.support import LONG
from tests.unit.bags import Bag, Follower, Row, change_tables, counted, make_app, table_of

pytestmark = pytest.mark.usefixtures("processing_mode")

CASES = 100 if LONG else 2
COLUMNS = {"left": ("a", "n"), "right": ("a", "n")}


def whole(rows: Bag) -> Bag:
    """Return rows in which equal values are the same."""
    return [{key: int(value) if value == 2.0 else value for key, value in row.items()} for row in rows]


def counts(rows: Bag) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.items()) for row in whole(rows))


def rows_of(found: Counter[tuple[Any, ...]]) -> Bag:
    return [dict(items) for items in found.elements()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CASES))
def test_sets_follow_their_rows(seed: int) -> None:
    dice = random.Random(seed)
    app = make_app()
    partitions = {name: dice.choice((1, 2, 3)) for name in ("left", "right")}
    left, right = (table_of(app, name, count) for name, count in partitions.items())
    both = left.union_all(right)
    tables = {
        "distinct": left.distinct(),
        "union-all": both,
        "union": both.distinct(),
        "intersect": left.intersect(right),
        "intersect-all": left.intersect(right, all=True),
        "subtract": left.subtract(right),
        "subtract-all": left.subtract(right, all=True),
        "counts": both.group_by(["a", "n"]).agg(rows=Count()),
        "again": left.intersect(right, name="i").union_all(left.subtract(right, name="s"), name="u"),
    }
    models: dict[str, Callable[[Counter[Any], Counter[Any]], Counter[Any]]] = {
        "distinct": lambda one, other: Counter(one.keys()),
        "union-all": lambda one, other: one + other,
        "union": lambda one, other: Counter(one.keys() | other.keys()),
        "intersect": lambda one, other: Counter(one.keys() & other.keys()),
        "intersect-all": lambda one, other: one & other,
        "subtract": lambda one, other: Counter(one.keys() - other.keys()),
        "subtract-all": lambda one, other: one - other,
        "counts": lambda one, other: Counter((*row, ("rows", count)) for row, count in (one + other).items()),
        "again": lambda one, other: Counter(one.keys()),
    }
    for name, table in tables.items():
        table.to_stream("rows").apply(lambda row: whole([row])[0]).to_topic(app.topic(name, key_serializer="json"))
    driver = TopologyTestDriver(app)
    followers = {name: Follower(driver, name) for name in models}
    for now in change_tables(driver, dice, partitions, 40, COLUMNS):
        one, other = counts(now["left"]), counts(now["right"])
        for name, follower in followers.items():
            if name == "counts":
                # 2 and 2.0 are different groups there.
                assert sum(Counter(follower.read()).values()) >= len(models[name](one, other))
                continue
            assert follower.read() == counted(rows_of(models[name](one, other))), name


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CASES))
def test_equal_rows_get_keys(seed: int) -> None:
    dice = random.Random(seed)
    app = make_app()
    partitions = {name: dice.choice((1, 3)) for name in ("left", "right")}
    left, right = (table_of(app, name, count) for name, count in partitions.items())
    left.union_all(right).numbered("id").to_stream("both").to_topic(app.topic("out", key_serializer="str"))
    driver = TopologyTestDriver(app)
    rows: dict[str, Row] = {}
    for now in change_tables(driver, dice, partitions, 40, COLUMNS):
        for record in driver.read("out"):
            key, before, after = record.key.decode(), record.value["before"], record.value["after"]
            assert rows.get(key) == before
            rows.pop(key, None)
            if after is not None:
                assert after["id"] == key
                rows[key] = after
        present = [{"a": row["a"], "n": row["n"]} for row in rows.values()]
        assert counted(present) == counted([*now["left"], *now["right"]])


@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_reach_tables(partitions: int) -> None:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_database("shop")
    columns = "name STRING, day DATE, total DECIMAL(10, 2), PRIMARY KEY (name)"
    catalog.create_table("shop.joined", columns, num_partitions=partitions)
    catalog.create_table("shop.bag", "row_key STRING, day DATE, PRIMARY KEY (row_key)", num_partitions=partitions)
    app = Application("unused:9092", consumer_group="bags", loglevel=None, catalog=catalog)
    config = TopicConfig(partitions, 1)

    def row(value: Any) -> Any:
        return {**value, "day": datetime.date(2024, 1, value["day"]), "total": Decimal(value["total"])}

    people = app.table(app.topic("people", key_deserializer="str", config=config))
    orders = app.dataframe(app.topic("orders", config=config)).apply(row).to_rows()
    joined = people.join(orders, on=("id", "person"), on_merge="keep-left")
    joined[["name", "day", "total"]].to_table("shop.joined")
    joined[["day"]].numbered().to_table("shop.bag")
    driver = TopologyTestDriver(app)
    driver.pipe("people", {"id": 1, "name": "ann"}, key="a", partition=partitions - 1)
    driver.pipe("orders", {"person": 1, "day": 2, "total": "1.50"})
    read = {record.key: record.value for record in driver.read("shop.joined")}
    assert read == {"ann": {"name": "ann", "day": datetime.date(2024, 1, 2), "total": Decimal("1.50")}}
    driver.pipe("orders", {"person": 1, "day": 2, "total": "2.00"}, partition=partitions - 1)
    driver.pipe("people", {"id": 1, "name": "bob"}, key="a", partition=partitions - 1)
    read = {record.key: record.value for record in driver.read("shop.joined")}
    assert read["ann"] is None
    assert read["bob"]["day"] == datetime.date(2024, 1, 2)
    bag = {record.key: record.value for record in driver.read("shop.bag")}
    assert sorted(key.rpartition("-")[2] for key, value in bag.items() if value is not None) == ["1", "2"]
    driver.pipe("people", None, key="a", partition=partitions - 1)
    assert {record.key: record.value for record in driver.read("shop.joined")} == {"bob": None}
    assert all(record.value is None for record in driver.read("shop.bag"))


def test_what_is_no_table_is_refused() -> None:
    app = make_app()
    left, right = table_of(app, "left", 1), table_of(app, "right", 1)
    with pytest.raises(ArgumentValueError, match="at least one"):
        left.union_all()
    with pytest.raises(ArgumentTypeError, match="needs another table"):
        left.union_all(app.dataframe(app.topic("s")))
    with pytest.raises(ArgumentValueError, match="another application"):
        left.subtract(table_of(make_app(), "right", 1))
    left.subtract(right)
    with pytest.raises(InvalidOperationError, match="name="):
        left.subtract(right)
    left.distinct()
    with pytest.raises(InvalidOperationError, match="name="):
        left.distinct()


@pytest.mark.parametrize("partitions", [1, 3])
def test_groups_of_a_table_are_exact(partitions: int) -> None:
    app = make_app()
    config = TopicConfig(partitions, 1)
    nan, day = float("nan"), datetime.date(2024, 1, 1)
    values: list[Any] = [
        -0.0,
        0.0,
        nan,
        nan,
        Decimal("1.50"),
        Decimal("1.50"),
        None,
        None,
        day,
        day,
        b"a",
        b"a",
        "x",
        [1],
    ]
    rows = app.dataframe(app.topic("in", config=config)).apply(lambda number: {"g": values[number], "h": number % 2})
    groups: list[Any] = []
    for columns in ("g", ["g", "h"]):
        table = rows.to_rows().group_by(columns).agg(rows=Count())
        table.to_stream("rows").apply(groups.append, metadata=False)
    driver = TopologyTestDriver(app)
    for number in range(len(values)):
        driver.pipe("in", number, partition=number % partitions)
    present = Counter(
        (repr(row["g"]), row.get("h"), row["rows"]) for row in groups if row["_change_type"] in ("+I", "+U")
    )
    for group in ("0.0", "nan", "Decimal('1.50')", "None", repr(day), "b'a'"):
        assert present[group, None, 2] == 1
        assert present[group, 0, 1] == present[group, 1, 1] == 1
    assert present["'x'", None, 1] == present["[1]", None, 1] == 1
