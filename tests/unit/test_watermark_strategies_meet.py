"""`WatermarkStrategy` with connected frames, broadcasts, windows with triggers, and at the end of bounded runs."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamrt import (
    BroadcastContext,
    BroadcastProcessFunction,
    Context,
    CoProcessFunction,
    TimerContext,
    WatermarkStrategy,
)
from streamrt.dataframe import StreamingDataFrame
from streamrt.errors import InvalidOperationError
from streamrt.event_time.end_of_time import EndOfTime
from streamrt.event_time.event_time import EventTime
from streamrt.kafka import TopicConfig
from streamrt.runtime.report import StoreTime
from streamrt.testing import TopologyTestDriver
from streamrt.topology import TaskId
from streamrt.windows import EventTimeTrigger, TumblingEventTimeWindows
from tests.unit.apps import Stage, application
from tests.unit.test_process import gathered
from tests.unit.test_watermark_strategies import Alarms

FIVE = WatermarkStrategy.for_bounded_out_of_orderness(5)
BEHIND = WatermarkStrategy.for_generator(lambda value, timestamp: timestamp - 6)
"""The same watermarks, for tests."""
FORMS = pytest.mark.parametrize(
    "strategy", [FIVE, BEHIND, FIVE.with_alignment(1_000)], ids=["lag", "generator", "aligned"]
)
in_both_modes = pytest.mark.usefixtures("processing_mode")


class Both(CoProcessFunction):
    """Has a timer for each record of either side, ten milliseconds later."""

    def process_element1(self, value: Any, ctx: Context) -> None:
        ctx.register_event_time_timer(ctx.timestamp + 10)

    process_element2 = process_element1

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield timestamp


class Ruled(BroadcastProcessFunction):
    """Likewise for the records that are not broadcasts."""

    def process_element(self, value: Any, ctx: BroadcastContext) -> None:
        ctx.register_event_time_timer(ctx.timestamp + 10)

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
        ctx.broadcast_state("rules")["last"] = value

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield timestamp


def two(partitions: int = 1, strategy: WatermarkStrategy | None = None) -> tuple[Any, StreamingDataFrame, Any]:
    app = application()
    one, other = (
        app.dataframe(app.topic(name, config=TopicConfig(partitions, 1), watermark_strategy=strategy))
        for name in ("a", "b")
    )
    return app, one, other


def played(app: Any, results: Any, *records: tuple[str, int]) -> list[list[Any]]:
    """Return what comes out after each record, and at last at the end of the run."""
    driver, found = TopologyTestDriver(app), []
    for topic, timestamp in records:
        driver.pipe(topic, 1, key=b"k", timestamp=timestamp)
        found.append(list(results))
        results.clear()
    driver.end()
    return [*found, list(results)]


@in_both_modes
@FORMS
def test_records_of_both_sides_of_a_connected_frame_count(strategy: WatermarkStrategy) -> None:
    app, one, other = two()
    results = gathered(one.connect(other).process(Both(), clock=strategy))
    records = ("a", 0), ("b", 15), ("b", 16), ("a", 31), ("a", 12)
    assert [[row[2] for row in rows] for rows in played(app, results, *records)] == [
        [],
        [],
        [10],
        [25],
        [22],
        [26, 41],
    ]


@in_both_modes
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_broadcast_and_a_connected_frame_have_the_strategy_of_their_topics(partitions: int) -> None:
    builds: list[tuple[Callable[..., Any], list[int]]] = [
        (lambda one, other: one.connect(other).process(Both()), [10, 40]),
        (lambda one, other: one.connect(other.broadcast()).process(Ruled()), [10]),
    ]
    for build, expected in builds:
        app, one, other = two(partitions, FIVE)
        results = gathered(build(one, other))
        topology = app.topology
        assert [each for stream in topology.streams for each in topology.watermarks(stream).values()] == [FIVE]
        found = played(app, results, ("a", 0), ("b", 30))
        assert [row[2] for rows in found for row in rows] == expected


def test_a_broadcast_has_no_generator() -> None:
    _, one, other = two(2)
    with pytest.raises(InvalidOperationError, match="behind group_by or with a broadcast frame"):
        one.connect(other.broadcast()).process(Ruled(), clock=BEHIND)


def test_connected_topics_with_different_strategies_need_a_choice() -> None:
    app = application()
    one = app.dataframe(app.topic("a", watermark_strategy=FIVE))
    other = app.dataframe(app.topic("b"))
    with pytest.raises(InvalidOperationError, match=r"topics a and b have different .* with clock="):
        one.connect(other).process(Both())


WINDOWS: dict[str, Callable[..., Any]] = {
    "assigned": lambda sdf, *clock: sdf.window(TumblingEventTimeWindows(10)).count().final(*clock),
    "triggered": lambda sdf, *clock: (
        sdf.tumbling_window(10).count().trigger(EventTimeTrigger(), **({"closing_strategy": clock[0]} if clock else {}))
    ),
    "plain": lambda sdf, *clock: sdf.tumbling_window(10).count().final(*clock),
}


@in_both_modes
@FORMS
@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_with_and_without_triggers_close_by_the_same_strategy(kind: str, strategy: WatermarkStrategy) -> None:
    stage = Stage()
    results = gathered(WINDOWS[kind](stage.sdf, strategy))
    found = played(stage.app, results, ("in", 3), ("in", 14), ("in", 9), ("in", 15), ("in", 9), ("in", 25), ("in", 33))
    assert [[row[2] for row in rows] for rows in found] == [[], [], [], [0], [], [10], [], [20, 30]]


@in_both_modes
@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_with_and_without_triggers_have_the_strategy_of_their_topic(kind: str) -> None:
    stage = Stage({"watermark_strategy": FIVE})
    WINDOWS[kind](stage.sdf)
    topology = stage.app.topology
    assert [each for stream in topology.streams for each in topology.watermarks(stream).values()] == [FIVE]


@in_both_modes
@FORMS
def test_the_end_moves_no_clock(strategy: WatermarkStrategy) -> None:
    stage = Stage()
    stage.sdf.process(Alarms(), clock=strategy)
    with stage.drive() as driver:
        driver.pipe(stage.source, 1, key=b"a", timestamp=0)
        driver.end()
        assert [output[0][0] for output in driver.outputs()] == [10]
        driver.pipe(stage.source, 1, key=b"b", timestamp=2)
        assert driver.outputs() == []
        driver.pipe(stage.source, 1, key=b"c", timestamp=18)
        assert [output[0][0] for output in driver.outputs()] == [12]


def test_at_the_end_no_task_waits_for_others() -> None:
    stage = Stage({"config": TopicConfig(2, 1)})
    stage.sdf.tumbling_window(10, name="w").count().final(WatermarkStrategy(alignment=5))
    slow, fast = TaskId("in", 0), TaskId("in", 1)
    end = EndOfTime()
    time = EventTime(stage.app.topology, {"in": 2}, end)
    time.assign([slow, fast])
    time.ready([slow, fast])
    (store,) = stage.app.topology.watermarks("in")
    time.report({(task, store): StoreTime(at, None) for task, at in ((slow, 1), (fast, 50))}, {})
    assert time.ahead() == {fast}
    end.reach(0)
    assert set(end.due) == {slow, fast}
    assert time.ahead() == frozenset()
