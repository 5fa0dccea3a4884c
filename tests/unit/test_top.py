"""`top()`: the first rows of each group, of streams and of tables."""

import random
from typing import Any, NamedTuple

import pytest

from streamrt import Application
from streamrt.errors import InvalidOperationError, ProcessingError
from streamrt.state.options import RocksDBOptions
from streamrt.testing import InputRecord, TopologyTestDriver
from streamrt.windows import Count, EventTimeSessions
from tests.unit.apps import Stage, application

pytestmark = pytest.mark.usefixtures("processing_mode")


def test_rows_by_group_and_rank() -> None:
    stage = Stage()
    stage.sdf.group_by("auction").top(2, by="price").to_stream("both")
    outputs = stage.outputs(*({"auction": 7, "price": price} for price in (10, 30, 5, 20)))
    changes = [
        (output[1], output[0]["op"], output[0]["after"]["price"], output[0]["after"]["rank"]) for output in outputs
    ]
    assert changes == [
        ([7, 1], "+I", 10, 1),
        ([7, 1], "+U", 30, 1),
        ([7, 2], "+I", 10, 2),
        ([7, 2], "+U", 20, 2),
    ]


Row = dict[str, Any]


def test_equal_rows_have_a_rank_and_a_number_in_it() -> None:
    stage = Stage()
    stage.sdf.group_by("g").top(2, by="a", method="rank", rank="place").to_stream("rows")
    outputs = stage.outputs(*({"g": 1, "a": a, "n": n} for n, a in enumerate((5, 5, 7, 5, 7))))
    changes = [(key, row["_change_type"], row["n"], row["place"], row["place_tie"]) for row, key, *_ in outputs]
    assert changes == [
        ([1, 1, 1], "+I", 0, 1, 1),
        ([1, 1, 2], "+I", 1, 1, 2),
        ([1, 1, 1], "-U", 0, 1, 1),
        ([1, 1, 1], "+U", 2, 1, 1),
        ([1, 1, 2], "-D", 1, 1, 2),
        ([1, 2, 1], "+I", 0, 2, 1),
        ([1, 2, 2], "+I", 1, 2, 2),
        ([1, 2, 3], "+I", 3, 2, 3),
        ([1, 1, 2], "+I", 4, 1, 2),
        ([1, 2, 1], "-D", 0, 2, 1),
        ([1, 2, 2], "-D", 1, 2, 2),
        ([1, 2, 3], "-D", 3, 2, 3),
    ]


class Order(NamedTuple):
    """The arguments of a `top`, and its result from the definition."""

    n: int
    by: list[str]
    descending: list[bool]
    method: Any

    @classmethod
    def choose(cls, rng: random.Random) -> "Order":
        """Return some arguments."""
        by = rng.choice((["a"], ["a", "b"]))
        method = rng.choice(("row_number", "rank", "dense_rank"))
        return cls(rng.choice((1, 2, 3)), by, [rng.random() < 0.5 for _ in by], method)

    def add(self, grouped: Any) -> Any:
        """Add the `top` to a grouping."""
        descending: Any = self.descending if len(set(self.descending)) > 1 else self.descending[0]
        return grouped.top(self.n, self.by, descending=descending, method=self.method)

    def values_of(self, row: Row) -> list[Any]:
        """Return what orders a row; None is last."""
        values = [(row[column], falls) for column, falls in zip(self.by, self.descending, strict=True)]
        return [(value is None, 0 if value is None else -value if falls else value) for value, falls in values]

    def rank(self, rows: list[Row]) -> list[Row]:
        """Return the rows that have a rank; equal ones in their order."""
        ranked: list[Row] = []
        known = [self.values_of(row) for row in rows]
        for place, row in enumerate(sorted(rows, key=self.values_of), 1):
            values = self.values_of(row)
            if self.method == "row_number":
                ranks = {"rank": place}
            else:
                before = [each for each in known if each < values]
                rank = 1 + len(before if self.method == "rank" else {repr(each) for each in before})
                same = [each for each in ranked if each["rank"] == rank]
                ranks = {"rank": rank, "rank_tie": 1 + len(same)}
            if ranks["rank"] <= self.n:
                ranked.append(row | ranks)
        return ranked

    def key_of(self, row: Row, *group: Any) -> str:
        """Return the key of a row."""
        return repr([*group, row["rank"], *([row["rank_tie"]] if "rank_tie" in row else [])])


def apply_changes(outputs: list[Any], mode: str, table: dict[str, Any]) -> None:
    """Apply changes, each of which must fit what is there."""
    for value, key, *_ in outputs:
        if mode == "both":
            assert table.pop(repr(key), None) == value["before"]
            if value["after"] is not None:
                table[repr(key)] = value["after"]
        else:
            kind = value.pop("_change_type")
            if kind in ("-U", "-D"):
                assert table.pop(repr(key)) == value
            else:
                assert table.setdefault(repr(key), value) is value


def random_application(rng: random.Random) -> Application:
    """Return an application with one of the guarantees, and with a cache that holds all rows or few."""
    return application(
        processing_guarantee=rng.choice(("at-least-once", "exactly-once")),
        rocksdb_options=RocksDBOptions(object_cache_size=rng.choice((2_000, 1 << 20))),
    )


@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_of_a_stream_are_those_of_the_definition(partitions: int) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        order, mode = Order.choose(rng), rng.choice(("both", "rows"))
        app = random_application(rng)
        topic = app.topic("in", config=app.topic_manager.topic_config(num_partitions=partitions))
        order.add(app.dataframe(topic).group_by(["g", "h"])).to_stream(mode)
        rows: list[Row] = []
        table: dict[str, Any] = {}
        with TopologyTestDriver(app) as driver:
            for number in range(12):
                chunk = [
                    {
                        "g": rng.choice("xy"),
                        "h": 1,
                        "a": rng.choice((1, 2, 3, None)),
                        "b": rng.choice((1, 2)),
                        "n": [number, i],
                    }
                    for i in range(rng.randrange(1, 4))
                ]
                rows += chunk
                driver.pipe_many(InputRecord(topic, value, partition=number % partitions) for value in chunk)
                apply_changes(driver.outputs(), mode, table)
                expected = {
                    order.key_of(row, group, 1): row
                    for group in "xy"
                    for row in order.rank([row for row in rows if row["g"] == group])
                }
                assert table == expected, f"seed {seed}"


def test_rows_of_a_table_are_those_of_its_present_rows() -> None:
    for seed in range(10):
        rng = random.Random(seed)
        order, mode = Order.choose(rng), rng.choice(("both", "rows"))
        app = random_application(rng)
        topic = app.topic("in", key_deserializer="str", key_serializer="str")
        order.add(app.table(topic).group_by("g")).to_stream(mode)
        present: dict[str, Row] = {}
        table: dict[str, Any] = {}
        with TopologyTestDriver(app) as driver:
            for number in range(15):
                chunk: list[tuple[str, Row | None]] = []
                for _ in range(rng.randrange(1, 5)):
                    # Some rows are equal in all columns.
                    values = {"a": rng.choice((1, 2, 3, None)), "b": rng.choice((1, 2)), "n": rng.choice((0, number))}
                    row = {"g": rng.choice("xy")} | values
                    chunk.append((rng.choice("abcdef"), row if rng.random() < 0.75 else None))
                driver.pipe_many(InputRecord(topic, row, key) for key, row in chunk)
                present = {key: row for key, row in (present | dict(chunk)).items() if row is not None}
                apply_changes(driver.outputs(), mode, table)
                where = f"seed {seed}, chunk {number}"
                for group in "xy":
                    rows = [each for each in present.values() if each["g"] == group]
                    found = [each for each in table.values() if each["g"] == group]
                    # The order of equal rows is open; it depends on the rows only.
                    assert ordered(order, found) == ordered(order, order.rank(rows)), where
                    for each in found:
                        assert {name: each[name] for name in rows[0]} in rows, where
                assert all(key == order.key_of(each, each["g"]) for key, each in table.items()), where
        if seed < 3:
            assert table == replayed(order, [*present.items()][::-1]), f"seed {seed}"


def ordered(order: Order, rows: list[Row]) -> list[Any]:
    """Return the ranks of rows, and what orders them."""
    return sorted((row["rank"], row.get("rank_tie", 1), order.values_of(row)) for row in rows)


def replayed(order: Order, rows: list[tuple[str, Row]]) -> dict[str, Any]:
    """Return the result of a table that has got its rows in another order."""
    app = application()
    topic = app.topic("in", key_deserializer="str", key_serializer="str")
    order.add(app.table(topic).group_by("g")).to_stream("both")
    table: dict[str, Any] = {}
    with TopologyTestDriver(app) as driver:
        for key, row in rows:
            driver.pipe(topic, row, key=key)
        apply_changes(driver.outputs(), "both", table)
    return table


def test_rows_of_windows_are_those_of_the_definition() -> None:
    for seed in range(6):
        rng = random.Random(seed)
        order, stage = Order.choose(rng), Stage()
        sessions = rng.random() < 0.5
        window = stage.sdf.window(EventTimeSessions(3)) if sessions else stage.sdf.hopping_window(10, 5)
        order.add(window).final("partition")
        rows = [
            ({"a": rng.choice((1, 2, None)), "b": rng.choice((1, 2)), "n": n}, rng.choice("xy"), time)
            for n, time in enumerate(sorted(rng.randrange(60) for _ in range(30)))
        ]
        with stage.drive() as driver:
            driver.pipe_many(InputRecord(stage.source, value, key, time) for value, key, time in rows)
            driver.end()
            outputs = [(value, key) for value, key, *_ in driver.outputs()]
        expected: dict[Any, list[Row]] = {}
        for value, key, time in rows:
            bounds = {(found["start"], found["end"]) for found, group in outputs if group == key.encode()}
            for start, end in bounds:
                if start <= time < end:
                    expected.setdefault((key, start, end), []).append(value)
        ranked = [
            ({"start": start, "end": end} | row, key.encode())
            for (key, start, end), values in expected.items()
            for row in order.rank(values)
        ]
        assert sorted(outputs, key=repr) == sorted(ranked, key=repr), f"seed {seed}"


def test_results_of_windows_keep_their_bounds() -> None:
    stage = Stage()
    counts = stage.sdf.tumbling_window(10).agg(n=Count()).final("partition")
    counts.group_by("start").tumbling_window(1).top(1, by="n").final("partition")
    with stage.drive() as driver:
        for key, time in (("a", 1), ("b", 2), ("b", 3), ("a", 11), ("a", 21)):
            driver.pipe(stage.source, {}, key=key, timestamp=time)
        driver.end()
        assert [value for value, *_ in driver.outputs()] == [
            {"start": start, "end": start + 10, "n": n, "rank": 1} for start, n in ((0, 2), (10, 1), (20, 1))
        ]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_record_that_is_skipped_gets_no_rank(guarantee: Any) -> None:
    stage = Stage(on_processing_error=lambda *_: True, processing_guarantee=guarantee)
    changes = stage.sdf.group_by("g").top(2, "a").to_stream()
    changes.apply(lambda row: 10 / row["x"] and (row["a"], row["rank"]))
    with stage.drive() as driver:
        driver.pipe_many(
            InputRecord(stage.source, {"g": 1, "a": a, "x": x}) for a, x in ((5, 1), (6, 1), (9, 0), (4, 0), (8, 1))
        )
        assert [output[0] for output in driver.outputs()] == [(5, 1), (6, 1), (5, 2), (8, 1), (6, 2)]


def test_what_is_refused() -> None:
    stage = Stage()
    grouped = stage.sdf.group_by("g")
    best = grouped.top(2, "a")
    with pytest.raises(
        InvalidOperationError, match=r"give one of the two a name, such as top\(\.\.\., name='\.\.\.'\)"
    ):
        grouped.top(3, "a")
    again = grouped.top(3, "a", name="three")
    with pytest.raises(
        InvalidOperationError, match=r"join\(\) would look for keys in other partitions than those in which top"
    ):
        best.join(again)
    with stage.drive() as driver:
        with pytest.raises(ProcessingError, match=r"adds the column 'rank', which the values already have"):
            driver.pipe(stage.source, {"g": 1, "a": 1, "rank": 1})
        with pytest.raises(ProcessingError, match="column 'a' is missing"):
            driver.pipe(stage.source, {"g": 1})


@pytest.mark.parametrize("last", [None, 0])
def test_rows_without_the_first_value_are_ordered_by_the_next(last: int | None) -> None:
    stage = Stage()
    stage.sdf.group_by("g").top(1, ["a", "b"]).to_stream()
    with stage.drive() as driver:
        for b in (1, last):
            driver.pipe(stage.source, {"g": 1, "a": None, "b": b})


@pytest.mark.parametrize("values", [(1, "x"), (5, 4, "x"), (5, 4, None, "x")])
def test_values_that_cannot_be_compared_are_refused(values: tuple[Any, ...]) -> None:
    for descending in (True, False):
        stage = Stage()
        stage.sdf.group_by("g").top(2, "a", descending=descending).to_stream()
        with stage.drive() as driver:
            for value in values[:-1]:
                driver.pipe(stage.source, {"g": 1, "a": value})
            with pytest.raises(ProcessingError, match="top\\(\\) cannot order rows by column 'a'"):
                driver.pipe(stage.source, {"g": 1, "a": values[-1]})
