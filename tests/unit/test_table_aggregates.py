"""Aggregates of tables whose rows change are those of the present rows, after each change."""

import contextlib
import math
import random
import statistics
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from streamrt import Application, TopicConfig
from streamrt.errors import ArgumentTypeError, InvalidOperationError, ProcessingError
from streamrt.relations import Change, GroupAggregate, regroup
from streamrt.state.transactions import counted_values
from streamrt.state.transactions.counted_values import CountedValues
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.testing import TopologyTestDriver
from streamrt.windows import (
    Aggregator,
    AnyValue,
    BoolAnd,
    BoolOr,
    Collect,
    CollectList,
    Collector,
    CollectSet,
    Count,
    CountDistinct,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    MaxBy,
    Mean,
    Min,
    MinBy,
    Reduce,
    StandardDeviation,
    Sum,
    Total,
    Variance,
    retraction,
    sums,
)
from streamrt.windows.aggregation import Aggregation
from tests.support import LONG
from tests.unit.test_windows_behaviour import STORE, Task

pytestmark = pytest.mark.usefixtures("processing_mode")

Row = dict[str, Any]
FLOATS = [0.1, 0.2, -0.3, 1e300, -1e300, 1e-300, 5.0, 7.0]
SPECIAL = [*FLOATS, math.nan, math.inf, -math.inf]


class Product(Aggregator):
    """Takes numbers back by division."""

    def initialize(self) -> Any:
        return [1, 0]

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:
        return [old[0] * new["n"], old[1]] if new["n"] else [old[0], old[1] + 1]

    def retract(self, old: Any, value: Any) -> Any:
        return [old[0] // value["n"], old[1]] if value["n"] else [old[0], old[1] - 1]

    def result(self, value: Any) -> Any:
        return 0 if value[1] else value[0]


class Median(Collector):
    def result(self, items: Any) -> Any:
        found = list(items)
        return found[len(found) // 2]


def make_row(row: Row) -> Row:
    """Return the row with columns of all types, made from its number."""
    n = row["n"]
    dice = random.Random(n)
    return {
        **row,
        "float": dice.choice(FLOATS),
        "special": dice.choice(SPECIAL),
        "decimal": Decimal(n) / 7,
        "day": date(2024, 1, 1) + timedelta(days=n),
        "text": dice.choice([None, "a", "b", "ä"]),
        "bool": dice.choice([None, True, False]),
        "null": None,
    }


def known(rows: Sequence[Row], column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def sum_of(values: Sequence[float]) -> float:
    return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)


def exact_variance(values: Sequence[float]) -> float | None:
    return float(statistics.variance([Decimal(value) for value in values])) if len(values) > 1 else None


def mean_of(values: Sequence[float]) -> float | None:
    return None if not values else float(statistics.fmean(values))


AGGREGATES: dict[str, tuple[Any, Callable[[list[Row]], Any]]] = {
    "rows": (Count(), len),
    "texts": (Count("text"), lambda rows: len(known(rows, "text"))),
    "few": (Count(where=lambda row: row["n"] < 4), lambda rows: sum(row["n"] < 4 for row in rows)),
    "total": (Sum("n"), lambda rows: sum(row["n"] for row in rows)),
    "floats": (Sum("float"), lambda rows: sum_of([row["float"] for row in rows])),
    "special": (Sum("special"), lambda rows: sum_of([row["special"] for row in rows])),
    "decimals": (Sum("decimal"), lambda rows: sum((row["decimal"] for row in rows), Decimal(0))),
    "nothing": (Sum("null"), lambda rows: 0),
    "mean": (Mean("n"), lambda rows: mean_of([row["n"] for row in rows])),
    "mean_float": (
        Mean("float", where=lambda row: abs(row["float"]) < 10),
        lambda rows: mean_of([row["float"] for row in rows if abs(row["float"]) < 10]),
    ),
    "lowest": (Min("day"), lambda rows: min(known(rows, "day"))),
    "highest": (Max("text"), lambda rows: max(known(rows, "text"), default=None)),
    "lowest_float": (
        Min("special"),
        lambda rows: min((row["special"] for row in rows if not math.isnan(row["special"])), default=None),
    ),
    "users": (CountDistinct("text"), lambda rows: len(set(known(rows, "text")))),
    "days": (CountDistinct("day"), lambda rows: len(set(known(rows, "day")))),
    "day_set": (CollectSet("day"), lambda rows: sorted(set(known(rows, "day")))),
    "few_texts": (
        CollectSet("text", where=lambda row: row["n"] < 4),
        lambda rows: sorted({row["text"] for row in rows if row["n"] < 4 and row["text"] is not None}),
    ),
    "all": (BoolAnd("bool"), lambda rows: all(known(rows, "bool")) if known(rows, "bool") else None),
    "some": (BoolOr("bool"), lambda rows: any(known(rows, "bool")) if known(rows, "bool") else None),
    "variance": (
        Variance("float", where=lambda row: abs(row["float"]) < 10),
        lambda rows: exact_variance([row["float"] for row in rows if abs(row["float"]) < 10]),
    ),
    "deviation": (
        StandardDeviation("n", of="population"),
        lambda rows: statistics.pstdev(row["n"] for row in rows),
    ),
    "best": (MaxBy("text", by="n"), lambda rows: max(rows, key=lambda row: row["n"])["text"]),
    "worst": (MinBy("day", by="decimal"), lambda rows: min(rows, key=lambda row: row["n"])["day"]),
    "list": (CollectList("text"), lambda rows: sorted(known(rows, "text"))),
    "total_text": (Total("null"), lambda rows: None),
    "sum": (Total("n"), lambda rows: sum(row["n"] for row in rows)),
    "highest_nan": (
        Max("special", nan="highest"),
        lambda rows: max((row["special"] for row in rows), key=lambda value: (math.isnan(value), value)),
    ),
    "best_nan": (
        MaxBy("special", by="special", nan="highest"),
        lambda rows: max((row["special"] for row in rows), key=lambda value: (math.isnan(value), value)),
    ),
    "numbers": (Collect("n"), lambda rows: sorted(row["n"] for row in rows)),
    "median": (Median("day"), lambda rows: sorted(known(rows, "day"))[len(rows) // 2]),
    "bools": (
        Collect("bool", where=lambda row: row["n"] > 3),
        lambda rows: sorted(
            (row["bool"] for row in rows if row["n"] > 3), key=lambda value: (value is not None, value)
        ),
    ),
    "product": (Product(), lambda rows: math.prod(row["n"] for row in rows)),
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        # Decimals of the model are rounded to 28 digits.
        return math.isclose(one, other, rel_tol=Decimal("1E-25"))
    return bool(one == other)


def groups_of(rows: dict[str, Row]) -> dict[str | None, list[Row]]:
    groups: dict[str | None, list[Row]] = {}
    for row in rows.values():
        groups.setdefault(row["group"], []).append(make_row(row))
    return groups


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("seed", range(30 if LONG else 1))
def test_aggregates_are_those_of_the_present_rows(seed: int, partitions: int) -> None:
    rows, results = run_history(seed, partitions)
    compare_with_duckdb(rows, results)


def run_history(seed: int, partitions: int) -> tuple[dict[str, Row], dict[str | None, Row]]:
    """Compare aggregates with the model after each of many changes; return the rows and the aggregates at the end."""
    dice = random.Random(seed)
    app = Application("unused:9092", consumer_group="shop")
    topic = app.topic("rows", key_deserializer="str", config=TopicConfig(partitions, 1))
    table = (
        app.table(topic).apply(make_row).group_by("group").agg(**{name: made for name, (made, _) in AGGREGATES.items()})
    )
    results: dict[str | None, Row] = {}
    fails: list[bool] = []

    def crash(row: Any) -> None:
        if fails:
            raise ValueError("crash")

    def follow(change: dict[str, Any], key: Any, timestamp: int, headers: Any) -> None:
        # The key of the group of null is a list.
        key = None if key == [None] else key
        former = results.get(key)
        assert (former is None) is (change["before"] is None)
        assert former is None or all(same(former[name], change["before"][name]) for name in former)
        results.pop(key, None)
        if change["after"] is not None:
            results[key] = change["after"]

    table.to_stream("both").update(crash).update(follow, metadata=True)
    driver = TopologyTestDriver(app)
    rows: dict[str, Row] = {}
    for number in range(300 if LONG else 80):
        key, kind = dice.choice("abcdefghij"), dice.random()
        row = None if kind < 0.25 else {"group": dice.choice(["x", "y", "z", None]), "n": dice.randrange(12)}
        rows.pop(key, None)
        if row is not None:
            rows[key] = row
        if partitions == 1 and dice.random() < 0.1:
            # The aggregates have changed when it fails.
            fails.append(True)
            with contextlib.suppress(ProcessingError):
                driver.pipe("rows", row, key=key, timestamp=number)
            fails.clear()
        # The driver leaves out a record that has failed.
        driver.pipe("rows", row, key=key, timestamp=number)
        if dice.random() < 0.05:
            driver.stop()
            driver.start()
        groups = groups_of(rows)
        assert results.keys() == groups.keys()
        for group, present in groups.items():
            found = results[group]
            assert found["group"] == group
            for name, (_, model) in AGGREGATES.items():
                assert same(found[name], model(present)), (number, group, name, found[name], model(present))
    return rows, results


def compare_with_duckdb(rows: dict[str, Row], results: dict[str | None, Row]) -> None:
    database = duckdb.connect()
    database.execute(
        'CREATE TABLE t ("group" VARCHAR, n BIGINT, x DOUBLE, day DATE, text VARCHAR, bool BOOLEAN, decimal DECIMAL(38, 30))'
    )
    made = [make_row(row) for row in rows.values()]
    columns = ("group", "n", "float", "day", "text", "bool", "decimal")
    database.executemany(
        "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", [[row[name] for name in columns] for row in made]
    )
    answers = database.execute(
        """SELECT "group", count(*) AS rows, count(text) AS texts, count(*) FILTER (WHERE n < 4) AS few, sum(n) AS total,
        sum(decimal) AS decimals, avg(n) AS mean, min(day) AS lowest, max(text COLLATE "C") AS highest,
        count(DISTINCT text) AS users, count(DISTINCT day) AS days, bool_and(bool) AS "all", bool_or(bool) AS some,
        var_samp(x) FILTER (WHERE abs(x) < 10) AS variance, stddev_pop(n) AS deviation, max_by(n, n) AS n,
        min_by(day, decimal) AS worst FROM t GROUP BY "group"
        """
    )
    names = [column[0] for column in answers.description]
    found = {answer[0]: dict(zip(names, answer, strict=True)) for answer in answers.fetchall()}
    assert found.keys() == results.keys()
    for group, answer in found.items():
        del answer["n"]
        for name, value in answer.items():
            ours = results[group][name]
            close = isinstance(value, float) and math.isclose(value, ours, rel_tol=1e-9, abs_tol=1e-12)
            assert close or same(int(value) if name == "total" else value, ours), (group, name, value, ours)


def lose_retractions_of_sums(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        retraction, "add_number", lambda state, value, sign, packing: sums.add_number(state, value, 1, packing)
    )


def keep_values_that_are_taken_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CountedValues, "take", lambda sets, prefix, number, value: 1)


def forget_how_often_a_value_occurs(patch: pytest.MonkeyPatch) -> None:
    real = CountedValues.add
    patch.setattr(
        CountedValues,
        "add",
        lambda sets, prefix, number, value, by, cell=None: (
            real(sets, prefix, number, value, by, cell) if sets.take(prefix, number, value) is None else 2
        ),
    )


def find_stored_values_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    def edge(sets: Any, prefix: bytes, number: int, *, last: bool = False) -> Any:
        each = sets._find(prefix, number)
        stored = sets._partition.scan(each.base, each.base + b"\xff", reverse=last)
        for key, data in stored:
            return key[len(each.base) :], counted_values._decode(data)[1]
        return None

    patch.setattr(CountedValues, "edge", edge)


def leave_a_row_in_its_former_group(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(regroup, "is_same_key", lambda one, other: True)


def keep_groups_without_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TimedTransaction, "delete_head", lambda transaction, prefix: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutate",
    [
        lose_retractions_of_sums,
        keep_values_that_are_taken_back,
        forget_how_often_a_value_occurs,
        find_stored_values_that_are_gone,
        leave_a_row_in_its_former_group,
        keep_groups_without_rows,
    ],
    ids=lambda mutate: mutate.__name__,
)
def test_deliberate_mistakes_are_found(mutate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    with pytest.raises((AssertionError, ProcessingError, KeyError)):
        run_history(0, 1)


def run(aggregations: dict[str, Any], *changes: tuple[str, Any], key: Any = "group") -> list[Any]:
    """Return the rows of the result that changes of rows bring out; None for a deletion."""
    app = Application("unused:9092", consumer_group="shop")
    table = app.table(app.topic("rows", key_deserializer="str"))
    table.group_by(key, name="g" if callable(key) else None).agg(**aggregations).to_stream().to_topic(
        app.topic("out", key_serializer="json", key_deserializer="json")
    )
    driver = TopologyTestDriver(app)
    for number, (name, row) in enumerate(changes):
        driver.pipe("rows", row, key=name, timestamp=number)
    return [(record.key, record.value) for record in driver.read("out")]


def test_a_row_that_changes_its_group_leaves_the_former_one() -> None:
    changes = [("a", {"group": "x"}), ("b", {"group": "x"}), ("a", {"group": "y"}), ("b", None)]
    assert run({"n": Count()}, *changes) == [
        ("x", {"group": "x", "n": 1}),
        ("x", {"group": "x", "n": 2}),
        ("x", {"group": "x", "n": 1}),
        ("y", {"group": "y", "n": 1}),
        ("x", None),
    ]


def test_groups_of_several_columns_and_of_functions() -> None:
    row = {"country": "FR", "city": "Lyon", "n": 5}
    assert run({"n": Sum("n")}, ("a", row), key=["country", "city"]) == [(["FR", "Lyon"], row)]
    assert run({"n": Sum("n")}, ("a", row), key=lambda row: row["n"] % 2) == [(1, {"g": 1, "n": 5})]


def test_a_column_that_does_not_count_changes_nothing() -> None:
    changes = [("a", {"group": "x", "n": 1, "other": 1}), ("a", {"group": "x", "n": 1, "other": 2})]
    assert run({"n": Sum("n")}, *changes) == [("x", {"group": "x", "n": 1})]


def test_aggregates_of_streams_count_distinct_values() -> None:
    app = Application("unused:9092", consumer_group="shop")
    visits = (
        app.dataframe(app.topic("visits")).group_by("page").agg(users=CountDistinct("user"), best=MaxBy("user", by="n"))
    )
    visits.to_stream().update(lambda row: None)
    driver = TopologyTestDriver(app)
    for n, user in enumerate(("ann", "bob", "ann", None)):
        driver.pipe("visits", {"page": "/", "user": user, "n": n})
    values = [value for value, *_ in driver.outputs()]
    assert values == [
        {"page": "/", "users": 1, "best": "ann"},
        {"page": "/", "users": 2, "best": "bob"},
        {"page": "/", "users": 2, "best": "ann"},
        {"page": "/", "users": 2, "best": None},
    ]


def test_any_value_stays_while_its_row_does() -> None:
    changes = [(name, {"group": "x", "n": n}) for name, n in (("a", 5), ("b", 3), ("c", 7))]
    rows = run({"n": AnyValue("n"), "rows": Count()}, *changes, ("b", None), ("a", None), ("c", None))
    assert [None if row is None else row["n"] for _, row in rows] == [5, 5, 5, 5, 7, None]


class Groups(Task):
    """Runs the aggregate of a table."""

    def take(self, value: Any, key: Any, timestamp: int, headers: Any) -> None:
        self.outputs.append((key, value))


def test_a_group_that_is_empty_keeps_nothing() -> None:
    aggregation = Aggregation.named(
        lowest=Min("n"), users=CountDistinct("n"), best=MaxBy("n", by="n"), any=AnyValue("n")
    )
    task = Groups(GroupAggregate(aggregation, STORE, (), retracts=True))
    numbers = [5, 3, 3, 8, 1.0, 1]
    for n in numbers:
        task.run([None, {"n": n}], b"x", 1)
        if n == 8:
            task.commit()
    task.commit()
    assert len(list(task.partition.scan(b"\x05", b"\x06"))) == 4 * 4
    for n in numbers:
        task.run([{"n": n}, None], b"x", 1)
    assert task.outputs[-1] == (b"x", Change({"lowest": 1, "users": 1, "best": 1, "any": 1}, None))
    task.commit()
    assert [key for key, _ in task.partition.scan(b"\x01", b"\x07")] == [b"\x04arrival"]


@pytest.mark.parametrize(
    ("aggregator", "advice"),
    [
        (First("n"), "rows of a table have no order, which First needs; MinBy and MaxBy choose by a column"),
        (Last("n"), "which Last needs"),
        (Earliest("n"), "which Earliest needs"),
        (Latest("n"), "which Latest needs"),
        (Reduce(max, abs), "Reduce has no function for that"),
    ],
)
def test_aggregators_that_take_nothing_back_are_refused(aggregator: Any, advice: str) -> None:
    app = Application("unused:9092", consumer_group="shop")
    groups = app.table(app.topic("rows")).group_by("group")
    with pytest.raises(InvalidOperationError, match=r"agg\(n=.*\) over a table: .*") as caught:
        groups.agg(n=aggregator)
    assert advice in str(caught.value)


def test_a_class_without_retract_is_refused() -> None:
    class Longest(Sum):
        def agg(self, old: Any, new: Any, timestamp: int) -> Any:
            return max(old, new)

    app = Application("unused:9092", consumer_group="shop")
    groups = app.table(app.topic("rows")).group_by("group")
    with pytest.raises(InvalidOperationError, match=r"define retract\(old, value\) in Longest"):
        groups.agg(n=Longest())
    with pytest.raises(ArgumentTypeError, match="would keep every value"):
        app.dataframe(app.topic("log")).group_by("group").agg(all=Collect())
