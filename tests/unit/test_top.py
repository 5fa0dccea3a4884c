"""`top()`: the first rows of each group, of streams and of tables."""

import random
from typing import Any

import pytest

from streamrt.errors import InvalidOperationError, ProcessingError
from streamrt.testing import InputRecord, TopologyTestDriver
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


def ranked(rows: list[dict[str, Any]], n: int, by: list[str], descending: bool) -> list[dict[str, Any]]:
    """The first rows from the definition: None last, and equal ones in the order of their arrival."""

    def order(row: dict[str, Any]) -> list[tuple[bool, int]]:
        values = [row[column] for column in by]
        return [(value is None, 0 if value is None else -value if descending else value) for value in values]

    return [{**row, "rank": place} for place, row in enumerate(sorted(rows, key=order)[:n], 1)]


def apply_changes(changes: list[dict[str, Any]], keys: list[Any], table: dict[str, Any]) -> None:
    """Apply changes, each of which must fit what is there."""
    for key, change in zip(keys, changes, strict=True):
        assert table.pop(repr(key), None) == change["before"]
        if change["after"] is not None:
            table[repr(key)] = change["after"]


@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_of_a_stream_are_those_of_the_definition(partitions: int) -> None:
    for seed in range(8):
        rng = random.Random(seed)
        n, by, descending = rng.choice((1, 3)), rng.choice((["a"], ["a", "b"])), rng.random() < 0.5
        app = application(processing_guarantee=rng.choice(("at-least-once", "exactly-once")))
        topic = app.topic("in", config=app.topic_manager.topic_config(num_partitions=partitions))
        app.dataframe(topic).group_by(["g", "h"]).top(n, by, descending=descending).to_stream("both")
        rows: list[dict[str, Any]] = []
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
                outputs = driver.outputs()
                apply_changes([output[0] for output in outputs], [output[1] for output in outputs], table)
                expected = {
                    repr([group, 1, row["rank"]]): row
                    for group in "xy"
                    for row in ranked([row for row in rows if row["g"] == group], n, by, descending)
                }
                assert table == expected, f"seed {seed}"


def test_rows_of_a_table_are_those_of_its_present_rows() -> None:
    for seed in range(8):
        rng = random.Random(seed)
        n, descending = rng.choice((1, 3)), rng.random() < 0.5
        app = application(processing_guarantee=rng.choice(("at-least-once", "exactly-once")))
        topic = app.topic("in", key_deserializer="str", key_serializer="str")
        app.table(topic).group_by("g").top(n, "a", descending=descending).to_stream("both")
        present: dict[str, dict[str, Any]] = {}
        table: dict[str, Any] = {}
        with TopologyTestDriver(app) as driver:
            for number in range(60):
                key = rng.choice("abcdef")
                row = None
                if rng.random() < 0.75:
                    row = {"g": rng.choice("xy"), "a": rng.randrange(50), "key": key, "number": number}
                driver.pipe(topic, row, key=key)
                present.pop(key, None)
                if row is not None:
                    present[key] = row
                outputs = driver.outputs()
                apply_changes([output[0] for output in outputs], [output[1] for output in outputs], table)
                # Rows with equal values have no order that a later change of one of them keeps.
                found = {name: (each["a"], each["rank"]) for name, each in table.items()}
                expected = {
                    repr([group, each["rank"]]): (each["a"], each["rank"])
                    for group in "xy"
                    for each in ranked([each for each in present.values() if each["g"] == group], n, ["a"], descending)
                }
                assert found == expected, f"seed {seed}, record {number}"
                assert all(
                    {**each, "rank": 0} in [{**row, "rank": 0} for row in present.values()] for each in table.values()
                )


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
