"""`sdf.drop_duplicates()`: the first or the last record of each key."""

import random
from datetime import timedelta
from typing import Any

import pytest

from streamrt import WatermarkStrategy
from streamrt.errors import InvalidOperationError
from streamrt.testing import InputRecord, TopologyTestDriver
from streamrt.topology.describe import as_text
from tests.unit.apps import Stage, application

pytestmark = pytest.mark.usefixtures("processing_mode")


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_first_record_of_equal_columns_passes_as_it_is(partitions: int) -> None:
    app = application()
    topic = app.topic("in", config=app.topic_manager.topic_config(num_partitions=partitions))
    app.dataframe(topic).drop_duplicates(["a", "b"])
    with TopologyTestDriver(app) as driver:
        for number, (a, b) in enumerate(((1, "x"), (1, "y"), (1, "x"), (2, None), (2, None), (1, "y"))):
            value = {"a": a, "b": b, "n": number}
            driver.pipe(
                topic, value, key=b"k", timestamp=5 + number, headers=[("h", b"1")], partition=number % partitions
            )
        headers = [("h", b"1")]
        assert driver.outputs() == [
            ({"a": 1, "b": "x", "n": 0}, [1, "x"], 5, headers),
            ({"a": 1, "b": "y", "n": 1}, [1, "y"], 6, headers),
            ({"a": 2, "b": None, "n": 3}, [2, None], 8, headers),
        ]


def test_by_default_keys_are_compared_and_records_without_one_pass() -> None:
    stage = Stage()
    stage.sdf.drop_duplicates()
    with stage.drive() as driver:
        for number, key in enumerate((b"a", b"b", None, b"a", None)):
            driver.pipe(stage.source, number, key=key)
        assert [output[0] for output in driver.outputs()] == [0, 1, 2, 4]
    assert stage.app.topic_manager.repartition_topics == {}
    assert "keys are kept for ever" in as_text(stage.app.topology)


def passed(records: list[tuple[str, int]], within: int, grace: int) -> tuple[list[int], int]:
    """What passes, from the definition: number of each record that passes; and how many are late."""
    first: dict[str, int] = {}
    found, late, clock = [], 0, -1
    for number, (key, timestamp) in enumerate(records):
        clock = max(clock, timestamp)
        if timestamp < clock - grace:
            late += 1
        elif key not in first or timestamp > first[key] + within:
            first[key] = timestamp
            found.append(number)
    return found, late


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_within_a_time_as_the_definition_says(guarantee: Any) -> None:
    for seed in range(15):
        rng = random.Random(seed)
        within, grace = rng.choice((1, 5, 20)), rng.choice((0, 5, 20))
        now, records = 0, []
        for _ in range(60):
            now += rng.choice((0, 0, 1, 3, 12))
            records.append((rng.choice("abc"), max(1, now - rng.choice((0, 0, 2, 9, 30)))))
        stage = Stage(processing_guarantee=guarantee)
        unique = stage.sdf.drop_duplicates(within=within, grace_ms=grace, closing_strategy="partition")
        late = unique.side_output("late").apply(lambda value: -1)
        assert late is not None
        with stage.drive() as driver:
            at = 0
            while at < len(records):
                size = rng.randrange(1, 12)
                driver.pipe_many(
                    InputRecord(stage.source, at + index, key.encode(), timestamp)
                    for index, (key, timestamp) in enumerate(records[at : at + size])
                )
                at += size
            values = [output[0] for output in driver.outputs()]
        assert ([value for value in values if value >= 0], values.count(-1)) == passed(records, within, grace), (
            f"seed {seed}"
        )


def test_keys_are_forgotten_when_the_watermark_has_passed() -> None:
    stage = Stage(source={"watermark_strategy": WatermarkStrategy(out_of_orderness=5)})
    stage.sdf.drop_duplicates(within=10)
    with stage.drive() as driver:
        for key, timestamp in ((b"a", 100), (b"a", 110), (b"b", 116), (b"b", 200)):
            driver.pipe(stage.source, timestamp, key=key, timestamp=timestamp)
        assert [output[0] for output in driver.outputs()] == [100, 116, 200]
        driver.pipe(stage.source, 0, key=b"a", timestamp=184)
        assert driver.outputs() == []
        driver.pipe(stage.source, 1, key=b"a", timestamp=185)
        assert [output[0] for output in driver.outputs()] == [1]
        driver.pipe(stage.source, 2, key=b"b", timestamp=190)
        assert driver.outputs() == []


def test_the_last_record_of_each_key_is_a_table() -> None:
    app = application()
    topic = app.topic("in", config=app.topic_manager.topic_config(num_partitions=3))
    app.dataframe(topic).drop_duplicates("id", keep="last").to_stream("both")
    with TopologyTestDriver(app) as driver:
        for n in (1, 2):
            driver.pipe(topic, {"id": 7, "n": n}, key=b"k")
        changes = [output[0] for output in driver.outputs()]
    assert [(change["op"], change["after"]["n"]) for change in changes] == [("+I", 1), ("+U", 2)]


def test_what_has_no_effect_is_refused() -> None:
    stage = Stage()
    with pytest.raises(
        InvalidOperationError, match=r"within=\.\.\.\) has no effect with keep='last', which is a table"
    ):
        stage.sdf.drop_duplicates(keep="last", within=timedelta(days=1))  # type: ignore[call-overload]
    with pytest.raises(InvalidOperationError, match=r"closing_strategy=\.\.\.\) has no effect without within"):
        stage.sdf.drop_duplicates(closing_strategy="partition")
    stage.sdf.drop_duplicates()
    with pytest.raises(
        InvalidOperationError, match=r"give one of the two a name, such as drop_duplicates\(\.\.\., name="
    ):
        stage.sdf.drop_duplicates()
    stage.sdf.drop_duplicates(name="again")
