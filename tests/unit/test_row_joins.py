"""Joins of tables by any columns, over random changes, are what a batch gives over the present rows."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, get_args

import pytest

import streamrt.runtime.tasks.chain.collector as collector_module
from streamrt import Application
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.relations import JoinHow, row_join
from streamrt.testing import TopologyTestDriver
from streamrt.windows import Count, Sum
from tests.support import LONG
from tests.unit.bags import Bag, Follower, Row, change_tables, counted, make_app, table_of

pytestmark = pytest.mark.usefixtures("processing_mode")

CASES = 100 if LONG else 2
HOWS: tuple[JoinHow, ...] = get_args(JoinHow)
COLUMNS = {"left": ("a", "n"), "right": ("b", "m")}


def join(
    left: Bag,
    right: Bag,
    how: str,
    on: tuple[str, str],
    condition: Callable[[Row, Row], bool] | None = None,
    *,
    null_safe: bool = False,
) -> Bag:
    """Return the join of two bags, from its definition."""

    def match(one: Row, other: Row) -> bool:
        a, b = one[on[0]], other[on[1]]
        equal = a == b and (null_safe or a is not None)
        return equal and (condition is None or condition(one, other))

    pairs = [(one, other) for one in left for other in right if match(one, other)]
    if how in ("semi", "anti"):
        return [one for one in left if any(match(one, other) for other in right) == (how == "semi")]
    found = [{**other, **one} for one, other in pairs]
    if how in ("left", "outer"):
        found += [one for one in left if not any(match(one, other) for other in right)]
    if how in ("right", "outer"):
        found += [other for other in right if not any(match(one, other) for one in left)]
    return found


def less(left: Row, right: Row) -> bool:
    return bool(left["n"] <= right["m"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CASES))
def test_joins_follow_their_rows(seed: int) -> None:
    dice = random.Random(seed)
    app = make_app()
    partitions = {name: dice.choice((1, 2, 3)) for name in ("left", "right")}
    left, right = (table_of(app, name, count) for name, count in partitions.items())
    models: dict[str, Callable[[Bag, Bag], Bag]] = {}
    for how in HOWS:
        every: dict[str, dict[str, Any]] = {
            how: {},
            f"{how}-if": {"condition": less},
            f"{how}-null": {"null_safe": True},
        }
        for name, options in every.items():
            table = left.join(right, how, "keep-left", name, ("a", "b"), **options)
            table.to_stream("rows").to_topic(app.topic(name))
            models[name] = lambda one, other, how=how, options=options: join(  # type: ignore[misc]
                one, other, how, ("a", "b"), **options
            )
    driver = TopologyTestDriver(app)
    followers = {name: Follower(driver, name) for name in models}
    for now in change_tables(driver, dice, partitions, 40, COLUMNS):
        for name, follower in followers.items():
            assert follower.read() == counted(models[name](now["left"], now["right"])), name


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2 * CASES))
def test_what_follows_from_joins(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    if seed % 2:
        # Each result of a join may end a portion.
        monkeypatch.setattr(collector_module, "_PORTION_S", -1.0)
        monkeypatch.setattr(row_join, "_FEW", 0)
    app = make_app()
    partitions = {name: dice.choice((1, 3)) for name in ("left", "right")}
    left, right = (table_of(app, name, count) for name, count in partitions.items())
    joined = left.join(right, "left", "keep-left", "first", ("a", "b"))
    joined = joined.apply(lambda row: {"a": row["a"], "n": row["n"], "m": row.get("m")})
    groups = joined.group_by("a")
    groups.agg(rows=Count(), total=Sum("n")).to_stream("rows").to_topic(app.topic("agg", key_serializer="json"))
    groups.top(2, by=["m", "n"]).to_stream("rows").to_topic(app.topic("top", key_serializer="json"))
    again = joined.join(
        joined.filter(lambda row: row["m"] is not None), on=("n", "m"), on_merge="keep-left", name="self"
    )
    again.to_stream("rows").to_topic(app.topic("again"))
    least = joined.group_by(["a", "n"]).agg(rows=Count())
    least.join(right, "semi", on=("rows", "m"), name="keyed").keyed_by(["a", "n"]).to_stream("rows").to_topic(
        app.topic("keyed", key_serializer="json")
    )
    driver = TopologyTestDriver(app)
    followers = {name: Follower(driver, name) for name in ("agg", "top", "again", "keyed")}
    for now in change_tables(driver, dice, partitions, 50, COLUMNS):
        rows = [
            {"a": row["a"], "n": row["n"], "m": row.get("m")}
            for row in join(now["left"], now["right"], "left", ("a", "b"))
        ]
        by_group: dict[Any, Bag] = {}
        for row in rows:
            by_group.setdefault(repr(row["a"]), []).append(row)
        aggregates = [
            {"a": group[0]["a"], "rows": len(group), "total": sum(row["n"] for row in group)}
            for group in by_group.values()
        ]
        assert followers["agg"].read() == counted(aggregates)
        ranked = [
            {**row, "rank": rank}
            for group in by_group.values()
            for rank, row in enumerate(
                sorted(group, key=lambda row: (row["m"] is not None, row["m"] or 0, row["n"]), reverse=True)[:2], 1
            )
        ]
        assert followers["top"].read() == counted(ranked)
        second = [row for row in rows if row["m"] is not None]
        assert followers["again"].read() == counted(join(rows, second, "inner", ("n", "m")))
        counts = Counter((repr(row["a"]), row["a"], row["n"]) for row in rows)
        grouped = [{"a": a, "n": n, "rows": count} for (_, a, n), count in counts.items()]
        assert followers["keyed"].read() == counted(join(grouped, now["right"], "semi", ("rows", "m")))


def test_what_cannot_be_joined_is_refused() -> None:
    app = make_app()
    left, right = table_of(app, "left", 1), table_of(app, "right", 1)
    with pytest.raises(ArgumentValueError, match="only as a pair"):
        left.join(right, on=("a", "b", "c"))
    with pytest.raises(ArgumentValueError, match="1 values for the left table and 2"):
        left.join(right, on=("a", ["b", "c"]))
    with pytest.raises(ArgumentValueError, match="needs a name"):
        left.join(right, on=([], []))
    with pytest.raises(ArgumentValueError, match="needs a name"):
        left.join(right, on=(len, "b"))
    with pytest.raises(ArgumentTypeError, match="strings, got 7"):
        left.join(right, on=("a", 7))
    with pytest.raises(ArgumentTypeError, match="condition"):
        left.join(right, on=("a", "b"), condition="a < b")
    with pytest.raises(ArgumentValueError, match=r"null_safe=\.\.\.\) needs"):
        left.join(right, null_safe=True)
    with pytest.raises(ArgumentValueError, match="'semi'"):
        left.join(right, "semi")
    joined = left.join(right, on=("a", "b"))
    with pytest.raises(InvalidOperationError, match="name='"):
        left.join(right, on=("a", "b"))
    for refused in (
        lambda: joined.join(right),
        lambda: right.join(joined),
        lambda: joined.join(right, on="b"),
        lambda: right.join(joined, on="b"),
        lambda: joined.to_stream(),
        lambda: app.dataframe(app.topic("s")).join(joined),
    ):
        with pytest.raises(InvalidOperationError, match="keyed_by"):
            refused()


def test_a_key_of_one_column_is_its_value() -> None:
    app = make_app()
    left, right = table_of(app, "left", 1), table_of(app, "right", 1)
    joined = left.join(right, "left", on=("a", "b"))
    joined.keyed_by("n").to_stream().to_topic(app.topic("one", key_serializer="json", key_deserializer="json"))
    joined.keyed_by(["n", "a"]).to_stream().to_topic(app.topic("two", key_serializer="json", key_deserializer="json"))
    driver = TopologyTestDriver(app)
    driver.pipe("left", {"a": 1, "n": 5}, key="x")
    driver.pipe("left", None, key="x")
    assert [(record.key, record.value) for record in driver.read("one")] == [(5, {"a": 1, "n": 5}), (5, None)]
    assert [record.key for record in driver.read("two")] == [[5, 1], [5, 1]]


def test_a_record_that_is_skipped_leaves_no_row() -> None:
    app = Application(
        "unused:9092", consumer_group="bags", loglevel=None, on_processing_error=lambda error, row, logger: True
    )
    left, right = table_of(app, "left", 1), table_of(app, "right", 1)

    def merge(one: Row, other: Row) -> Row:
        if one["n"] + other["m"] == 13:
            raise ValueError("bad luck")
        return {**one, **other}

    table = left.join(right, "inner", merge, "j", ("a", "b"))
    table.keyed_by(["n", "m"]).to_stream("rows").to_topic(app.topic("out", key_serializer="json"))
    driver = TopologyTestDriver(app)
    follower = Follower(driver, "out")
    sent: dict[str, dict[str, Row]] = {"left": {}, "right": {}}
    kept: dict[str, Bag] = {"left": [], "right": []}
    dice = random.Random(3)
    skipped = 0
    for _ in range(150):
        name, key = dice.choice(("left", "right")), dice.choice("abcdefghij")
        row: Row | None = {"a": 1, "n": dice.randrange(9)} if name == "left" else {"b": 1, "m": dice.randrange(9)}
        row = None if dice.random() < 0.3 else row
        driver.pipe(name, row, key=key)
        before = sent[name].pop(key, None)
        if row is not None:
            sent[name][key] = row
        if before == row:
            continue
        other = kept["right" if name == "left" else "left"]
        if row is not None and any(sum(row.values()) + sum(each.values()) == 15 for each in other):
            # The change is not made: the join still has the former row.
            skipped += 1
            continue
        if before in kept[name]:
            kept[name].remove(before)
        if row is not None:
            kept[name].append(row)
        pairs = join(kept["left"], kept["right"], "inner", ("a", "b"))
        assert follower.read() == counted({repr(sorted(pair.items())): pair for pair in pairs}.values())
    assert skipped > 10


def test_joins_may_follow_each_other() -> None:
    """What a join needs at its definition must not double with each one; nor may names of topics grow."""
    app = make_app()
    tables = [app.dataframe(app.topic(f"in{number}")).to_rows() for number in range(20)]
    joined = tables[0]
    for number, table in enumerate(tables[1:]):
        joined = joined.join(table, on=("k", "k"), name=f"join.{number}")
    joined.to_stream("rows").to_topic(app.topic("out"))
    assert max(map(len, app.topic_manager.repartition_topics)) < 60
    driver = TopologyTestDriver(app)
    for number in range(20):
        driver.pipe(f"in{number}", {"k": 1, f"v{number}": number})
    (record,) = driver.read("out")
    assert record.value == {"k": 1, "_change_type": "+I", **{f"v{number}": number for number in range(20)}}


@pytest.mark.parametrize(("left", "right"), [(1, 4), (4, 1), (2, 3), (3, 2)])
def test_the_larger_side_decides_on_the_number_of_partitions(left: int, right: int) -> None:
    app = make_app()
    table_of(app, "left", left).join(table_of(app, "right", right), on=("a", "b"), name="j").to_stream("rows").to_topic(
        app.topic("out")
    )
    driver = TopologyTestDriver(app)
    for number in range(8):
        driver.pipe("left", {"a": number}, key=str(number), partition=number % left)
        driver.pipe("right", {"b": number}, key=str(number), partition=number % right)
    assert len(driver.read("out")) == 8
    assert set(app.topology.resolve({"left": left, "right": right}).exchanges) == {
        "repartition__bags--left--j.left",
        "repartition__bags--right--j.right",
    }
    assert app.topology.origin("repartition__bags--left--j.left") == ("left" if left > right else "right")
