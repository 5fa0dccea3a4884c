"""Windows over a whole stream, in two phases, against a naive model of all records."""

import random
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streamrt import Application
from streamrt.errors import ArgumentValueError, InvalidOperationError, ProcessingError, UnfinishedWindowError
from streamrt.kafka import TopicConfig
from streamrt.testing import TopologyTestDriver
from streamrt.windows import Aggregator, Collect, Count, CountDistinct, Earliest, First, Last, Max, MaxBy, Mean, Sum
from streamrt.windows.parts import PartsMerger
from tests.support import LONG

pytestmark = pytest.mark.usefixtures("processing_mode")

Row = dict[str, Any]


def make_app(**settings: Any) -> Application:
    return Application("unused:9092", consumer_group="whole", loglevel=None, **settings)


def measure() -> dict[str, Any]:
    return {
        "n": Count(),
        "total": Sum("x"),
        "most": Max("x"),
        "mean": Mean("x"),
        "even": Count(where=lambda row: row["x"] % 2 == 0),
        "first": Earliest("id"),
        "best": MaxBy("x", by="x"),
    }


def expected(rows: list[Row]) -> Row:
    """Return the result over the records of a window."""
    numbers = [row["x"] for row in rows]
    return {
        "n": len(numbers),
        "total": sum(numbers),
        "most": max(numbers),
        "mean": sum(numbers) / len(numbers),
        "even": sum(x % 2 == 0 for x in numbers),
        "first": min(rows, key=lambda row: row["time"])["id"],
        "best": max(numbers),
    }


def make_rows(dice: random.Random, count: int, disorder: int) -> list[Row]:
    """Return records of different times, out of order by as much as `disorder`."""
    times = [7 * number for number in range(count)]
    arrivals = sorted(times, key=lambda time: time + dice.randrange(disorder + 1))
    return [{"id": number, "x": dice.randrange(-50, 50), "time": time} for number, time in enumerate(arrivals)]


def model(rows: list[Row], late: set[tuple[int, int]], duration: int, step: int) -> dict[int, Row]:
    """Return the results of all windows by their starts, without the records that were too late for them."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        for start in range(row["time"] // step * step, row["time"] - duration, -step):
            if start >= 0 and (row["id"], start) not in late:
                found.setdefault(start, []).append(row)
    return {start: expected(inside) for start, inside in found.items()}


class Late:
    """Notes each record and window that it was too late for."""

    def __init__(self) -> None:
        self.found: set[tuple[int, int]] = set()

    def __call__(self, value: Row, key: Any, time: int, late_by: int, start: int, end: int, *origin: Any) -> bool:
        self.found.add((value["id"], start))
        return False


def define(
    app: Application, partitions: int, duration: int, step: int, grace: int, late: Late, *, final: bool
) -> tuple[list[bool], dict[int, list[Row]]]:
    """Define windows; return what makes the next result fail, and the results by the starts of their windows."""
    sdf = app.dataframe(app.topic("in", key_deserializer="str", config=TopicConfig(partitions, 1)))
    length = timedelta(milliseconds=duration)
    if step < duration:
        window = sdf.hopping_window(length, step, grace_ms=grace, on_late=late)
    else:
        window = sdf.tumbling_window(length, grace_ms=grace, on_late=late)
    whole = window.agg_all(**measure())
    fails: list[bool] = []
    results: dict[int, list[Row]] = {}

    def note(value: Row, key: Any, timestamp: int, headers: Any) -> None:
        if fails:
            raise ValueError("crash")
        assert (key, timestamp, value["end"]) == ("all", value["start"], value["start"] + duration)
        results.setdefault(value.pop("start"), []).append(value)
        del value["end"]

    (whole.final() if final else whole.current(every=100)).update(note, metadata=True)
    return fails, results


@pytest.mark.slow
@settings(
    max_examples=300 if LONG else 6,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 2**32),
    partitions=st.sampled_from([1, 2, 3]),
    window=st.sampled_from([(50, 50), (60, 20), (100, 30)]),
    grace=st.sampled_from([0, 20, 200]),
    final=st.booleans(),
    guarantee=st.sampled_from(["at-least-once", "exactly-once"]),
)
def test_the_results_are_those_of_all_records(
    seed: int, partitions: int, window: tuple[int, int], grace: int, final: bool, guarantee: Any
) -> None:
    dice, (duration, step), late = random.Random(seed), window, Late()
    app = make_app(processing_guarantee=guarantee)
    fails, results = define(app, partitions, duration, step, grace, late, final=final)
    rows = make_rows(dice, 60, disorder=100)
    with TopologyTestDriver(app) as driver:
        for number, row in enumerate(rows):
            partition = number if number < partitions else dice.randrange(partitions)
            record = {"key": dice.choice(["a", "b", None]), "timestamp": row["time"], "partition": partition}
            if partitions == 1 and dice.random() < 0.1:
                # The driver leaves out a record that has failed: with several partitions, that would be a part.
                fails.append(True)
                try:
                    driver.pipe("in", row, **record)
                    done = True
                except ProcessingError:
                    done = False
                fails.clear()
                if done:
                    continue
            driver.pipe("in", row, **record)
            if dice.random() < 0.2:
                driver.advance(100)
            if dice.random() < 0.05:
                driver.stop()
                driver.start()
        assert not final or all(len(each) == 1 for each in results.values())
        driver.end()
    assert not final or all(len(each) == 1 for each in results.values())
    found = {start: each[-1] for start, each in results.items()}
    assert found == model(rows, late.found, duration, step)


@pytest.mark.rows("PF-G37")
def test_few_records_reach_the_task_that_merges() -> None:
    app, count = make_app(), 200
    _, results = define(app, 4, 1_000, 1_000, 0, Late(), final=True)
    with TopologyTestDriver(app) as driver:
        for number in range(count):
            driver.pipe("in", {"id": number, "x": 1, "time": 50 * number}, timestamp=50 * number, partition=number % 4)
        driver.end()
        sent = len(driver.read("repartition__whole--in--tumbling_window_1000_all"))
    assert {start: each[0]["n"] for start, each in results.items()} == dict.fromkeys(range(0, 10_000, 1_000), 20)
    assert sent == 4 * 10


def test_idle_partitions_hold_no_window_open() -> None:
    app, late = make_app(), Late()
    _, results = define(app, 2, 1_000, 1_000, 0, late, final=True)
    with TopologyTestDriver(app) as driver:
        driver.pipe("in", {"id": 0, "x": 1, "time": 500}, timestamp=500, partition=0)
        driver.pipe("in", {"id": 1, "x": 1, "time": 600}, timestamp=600, partition=1)
        driver.pipe("in", {"id": 2, "x": 1, "time": 1_500}, timestamp=1_500, partition=0)
        assert results == {}
        driver.advance(10_000)
        assert results[0][0]["n"] == 2
        driver.advance(20_000)
        assert [each[0]["n"] for each in results.values()] == [2, 1]


def test_an_idle_partition_that_goes_on_is_late() -> None:
    app, late = make_app(), Late()
    _, results = define(app, 2, 1_000, 1_000, 0, late, final=True)
    with TopologyTestDriver(app) as driver:
        for partition in (0, 1):
            driver.pipe("in", {"id": 0, "x": 1, "time": 0}, timestamp=0, partition=partition)
        driver.advance(30_000)
        driver.pipe("in", {"id": 1, "x": 1, "time": 40_000}, timestamp=40_000, partition=0)
        driver.advance(30_000)
        driver.pipe("in", {"id": 2, "x": 1, "time": 40_100}, timestamp=40_100, partition=1)
        driver.advance(30_000)
    assert {start: each[0]["n"] for start, each in results.items()} == {0: 2, 40_000: 1}
    assert late.found == {(2, 40_000)}


def test_a_part_replaces_that_of_its_partition_and_a_late_one_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    app, late = make_app(), Late()
    sdf = app.dataframe(app.topic("in", config=TopicConfig(2, 1)))
    sdf.tumbling_window(1_000, on_late=late).agg_all(n=Count()).current(every=0).to_topic(app.topic("out"))
    topic = "repartition__whole--in--tumbling_window_1000_all"
    with TopologyTestDriver(app) as driver:
        for number in (1, 2):
            driver.pipe("in", {"id": number}, timestamp=number, partition=0)
            driver.advance(1)
        sent = driver.read(topic)
        assert [record.value["n"] for record in driver.read("out")] == [1, 2]
        driver.pipe_bytes(topic, sent[-1].raw_value, key=b"all", timestamp=0)
        assert driver.read("out") == []
        driver.advance(30_000)
        for part in sent:
            driver.pipe_bytes(topic, part.raw_value, key=b"all", timestamp=0)
        assert driver.read("out") == []
    assert "1 records of in:0 of 2 are not in the result of the window 0 to 1000" in caplog.text


class Joined(Aggregator):
    """Joins ids, and counts merges."""

    merged = 0

    def initialize(self) -> str:
        return ""

    def agg(self, old: str, new: Any, timestamp: int) -> str:
        return f"{old}{new['id']},"

    def result(self, value: str) -> str:
        return value

    def merge(self, a: str, b: str) -> str:
        Joined.merged += 1
        return a + b


@pytest.mark.parametrize(("count", "most"), [(1, 0), (2, 1), (7, 3), (64, 6), (200, 8)])
def test_a_part_of_many_costs_few_merges(count: int, most: int) -> None:
    dice, merged = random.Random(5), 0

    def merge(one: str, other: str, packing: None) -> str:
        nonlocal merged
        merged += 1
        return one + other

    plan: Any = SimpleNamespace(fold=SimpleNamespace(merge=merge))
    merger, states = PartsMerger(plan), [f"{number}," for number in range(count)]
    assert merger.merge(states, None) == "".join(states)
    assert merged == count - 1
    for _ in range(20):
        at = dice.randrange(count)
        states = [*states[:at], f"{dice.random()},", *states[at + 1 :]]
        merged = 0
        assert merger.merge(states, None) == "".join(states)
        assert merged <= most
    for at in (count, 0, count // 2):
        states.insert(at, "new,")
        assert merger.merge(list(states), None) == "".join(states)
    del states[0]
    assert merger.merge(states, None) == "".join(states)


def test_results_of_many_partitions_cost_few_merges(processing_mode: str) -> None:
    app, count = make_app(), 32
    sdf = app.dataframe(app.topic("in", config=TopicConfig(count, 1)))
    sdf.tumbling_window(1_000).agg_all(all=Joined()).current(every=0).to_topic(app.topic("out"))
    Joined.merged = 0
    with TopologyTestDriver(app) as driver:
        for turn in range(3):
            for number in range(count):
                driver.pipe("in", {"id": number}, timestamp=turn, partition=number)
            driver.advance(1)
        found = driver.read("out")
    assert len(found) == 3 * count
    order = sorted(f"in:{number} of {count}" for number in range(count))
    numbers = [name.removeprefix("in:").partition(" ")[0] for name in order]
    assert found[-1].value["all"] == "".join(f"{number}," * 3 for number in numbers)
    # With a merge of all parts for each of them, these would be 2,480. Each micro-batch of the driver reads them again.
    if processing_mode == "resident":
        assert Joined.merged < 3 * count * 8


def test_late_records_go_to_the_side_output() -> None:
    app = make_app()
    sdf = app.dataframe(app.topic("in", config=TopicConfig(1, 1)))
    result = sdf.tumbling_window(1_000).agg_all(n=Count()).final()
    result["doubled"] = result["n"] * 2
    result.side_output("late").to_topic(app.topic("late"))
    result.to_topic(app.topic("out"))
    with pytest.raises(ArgumentValueError, match="has no side output"):
        result.apply(lambda value: value).side_output("late")
    with TopologyTestDriver(app) as driver:
        for number, time in enumerate((0, 2_000, 500)):
            driver.pipe("in", {"number": number}, timestamp=time)
        assert [record.value for record in driver.read("late")] == [{"number": 2}]
        assert [record.value["doubled"] for record in driver.read("out")] == [2]


def test_windows_of_two_exchanges() -> None:
    app = make_app()
    sdf = app.dataframe(app.topic("in", config=TopicConfig(3, 1)))
    users = sdf.group_by("user").tumbling_window(1_000).count().final(closing_strategy="watermark")
    busiest = users.tumbling_window(1_000, grace_ms=1_000, name="all").agg_all(most=Max("value"), users=Count()).final()
    busiest.to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        for number in range(100):
            driver.pipe("in", {"user": number % 7 % 4}, timestamp=30 * number, partition=number % 3)
        driver.end()
        found = [record.value for record in driver.read("out")]
    assert [value["start"] for value in found] == [0, 1_000, 2_000]
    assert all(value["users"] == 4 for value in found)


def test_open_windows_can_be_read() -> None:
    app = make_app()
    sdf = app.dataframe(app.topic("in", config=TopicConfig(1, 1)))
    sdf.tumbling_window(1_000).agg_all(n=Count()).current(every=0).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe("in", {}, timestamp=5)
        driver.advance(1)
        opened = {"start": 0, "end": 1_000, "n": 1}
        assert [record.value for record in driver.read("out")] == [opened]


def test_what_is_refused() -> None:
    sdf = make_app().dataframe(make_app().topic("in"))
    window = sdf.tumbling_window(1_000)
    refused: list[tuple[Any, str]] = [
        (First("x"), "no order of arrival"),
        (Last("x"), "no order of arrival"),
        (Collect("x"), "all values would go to the one task that merges"),
        (CountDistinct("x"), "ApproxCountDistinct can be merged"),
    ]
    for aggregator, text in refused:
        with pytest.raises(InvalidOperationError, match=text):
            window.agg_all(found=aggregator)
    with pytest.raises(ArgumentValueError, match="at least one aggregation"):
        window.agg_all()
    for other in (sdf.session_window(1_000), sdf.sliding_window(1_000)):
        with pytest.raises(InvalidOperationError, match="needs tumbling or hopping windows"):
            other.agg_all(n=Count())
    with pytest.raises(UnfinishedWindowError, match="no common order"):
        sdf.tumbling_count_window(5).agg_all(n=Count())  # type: ignore[attr-defined]
    with pytest.raises(ArgumentValueError, match="after_update"):
        sdf.tumbling_window(1_000, after_update=lambda *_: True).agg_all(n=Count())
    for clock in ("key", "partition"):
        with pytest.raises(ArgumentValueError, match="which wait for all partitions"):
            window.agg_all(n=Count()).final(closing_strategy=clock)
    with pytest.raises(ArgumentValueError, match="every"):
        window.agg_all(n=Count()).current(every=-1)
    with pytest.raises(
        UnfinishedWindowError, match=r"a window with agg_all\(\) has no \w+: it is merged from the parts"
    ):
        window.agg_all(n=Count()).trigger()  # type: ignore[attr-defined]
    window.agg_all(n=Count()).final()
    with pytest.raises(InvalidOperationError, match=r"name='\.\.\.'"):
        window.agg_all(n=Count()).final()
