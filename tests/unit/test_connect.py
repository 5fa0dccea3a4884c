"""Connected dataframes: functions of the records of two frames, in both modes."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from streamrt import Application, Context, CoProcessFunction, ProcessFunction, TimerContext
from streamrt.dataframe import StreamingDataFrame
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidOperationError,
    ProcessingError,
    TopicConfigurationError,
)
from streamrt.kafka import TopicConfig
from streamrt.testing import TopologyTestDriver
from tests.known_programs.functions import MatchFares
from tests.unit.apps import application
from tests.unit.test_process import gathered

pytestmark = pytest.mark.usefixtures("processing_mode")

CLOCKS = pytest.mark.parametrize("clock", ["watermark", "partition"])


def frames(
    *names: str, partitions: tuple[int, ...] = (1, 1), **settings: Any
) -> tuple[Application, list[StreamingDataFrame]]:
    app = application(**settings)
    topics = [
        app.topic(name, key_deserializer="str", key_serializer="str", config=TopicConfig(count, 1))
        for name, count in zip(names, partitions, strict=True)
    ]
    return app, [app.dataframe(topic) for topic in topics]


@pytest.mark.rows("PF-I1", "PF-I4", "PF-I5", "PF-I6", "PF-I8")
@CLOCKS
def test_either_side_moves_event_time(clock: Any) -> None:
    app, (rides, fares) = frames("rides", "fares")
    unmatched = gathered(rides.connect(fares).process(MatchFares(), clock=clock).side_output("unmatched"))
    driver = TopologyTestDriver(app)
    driver.pipe("rides", {"id": 2}, key="r2", timestamp=2_000)
    view = driver.state("fares--rides", "r2", store="process_MatchFares")
    assert (view.value("ride"), view.timers()) == ({"id": 2}, [12_000])
    driver.pipe("fares", {"fare": 4}, key="r4", timestamp=20_000)
    assert unmatched == [("r2", {"id": 2}, 12_000)]
    driver.pipe("rides", {"id": 5}, key="r5", timestamp=40_000)
    assert unmatched[1:] == [("r4", {"fare": 4}, 30_000)]


class Sides(CoProcessFunction):
    """Tells the side of each record, and how many there were with its key."""

    def process_element1(self, value: Any, ctx: Context) -> Iterator[Any]:
        yield from self._count(1, value, ctx)

    def process_element2(self, value: Any, ctx: Context) -> Iterator[Any]:
        yield from self._count(2, value, ctx)

    def _count(self, side: int, value: Any, ctx: Context) -> Iterator[Any]:
        count = ctx.state.value("count", default=0)
        count.update(count.value() + 1)
        yield side, value, count.value()


def test_a_frame_connected_with_itself_and_with_a_child() -> None:
    app, (frame,) = frames("in", partitions=(1,))
    itself = gathered(frame.connect(frame).process(Sides(), name="itself"))
    big = frame.filter(lambda value: value > 1)
    child = gathered(frame.connect(big).process(Sides(), name="child"))
    reverse = gathered(big.connect(frame).process(Sides(), name="reverse"))
    driver = TopologyTestDriver(app)
    for value in (1, 2):
        driver.pipe("in", value, key="k", timestamp=value)
    assert [value for _, value, _ in itself] == [(1, 1, 1), (2, 1, 2), (1, 2, 3), (2, 2, 4)]
    assert sorted(value[:2] for _, value, _ in child) == [(1, 1), (1, 2), (2, 2)]
    assert sorted(value[:2] for _, value, _ in reverse) == [(1, 2), (2, 1), (2, 2)]
    assert driver.state("in", "k", store="process_itself").value("count") == 4


@pytest.mark.rows("PF-I2")
def test_frames_behind_group_by_meet_by_their_new_keys() -> None:
    app, (left, right) = frames("left", "right", partitions=(3, 3))
    grouped = [frame.group_by("id", key_serializer="str", key_deserializer="str") for frame in (left, right)]
    results = gathered(grouped[0].connect(grouped[1]).process(Sides()))
    driver = TopologyTestDriver(app)
    for number in range(4):
        driver.pipe("left", {"id": f"k{number}"}, key="any", timestamp=1, partition=number % 3)
        driver.pipe("right", {"id": f"k{number}"}, key="any", timestamp=2, partition=(number + 1) % 3)
    found = sorted((key, value[0], value[2]) for key, value, _ in results)
    assert found == [(f"k{number}", side, side) for number in range(4) for side in (1, 2)]


def test_sides_with_different_numbers_of_partitions_are_refused() -> None:
    app, (left, right) = frames("left", "right", partitions=(2, 3))
    left.connect(right).process(Sides())
    with pytest.raises(TopicConfigurationError, match="left has 2, right has 3"):
        TopologyTestDriver(app)


class Failing(Sides):
    def process_element2(self, value: Any, ctx: Context) -> Iterator[Any]:
        ctx.register_processing_time_timer(0)
        if value == "bad":
            raise ValueError("no such fare")
        yield from ()

    def on_timer(self, timestamp: int, ctx: TimerContext) -> None:
        raise ValueError("no such time")


def test_errors_name_the_side() -> None:
    said = []

    def skip(error: Exception, record: Any, logger: logging.Logger) -> bool:
        said.append((str(error), record is None))
        return len(said) > 1

    app, (left, right) = frames("left", "right", on_processing_error=skip)
    gathered(left.connect(right).process(Failing()))
    driver = TopologyTestDriver(app)
    driver.pipe("left", "bad", key="k", timestamp=1)
    with pytest.raises(
        ProcessingError, match=r"\(Failing, process_Failing, process_element2\) defined at .* right\[0\]"
    ):
        driver.pipe("right", "bad", key="k", timestamp=2)
    driver = TopologyTestDriver(app)
    driver.pipe("right", "good", key="k", timestamp=2)
    driver.advance(1)
    assert [text for text, _ in said] == ["no such fare", "no such time"]


def test_what_is_refused() -> None:
    app, (left, right) = frames("left", "right")
    _, (foreign,) = frames("left", partitions=(1,))
    with pytest.raises(ArgumentTypeError, match=r"connect\(\) needs another dataframe, got str"):
        left.connect("right")  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="another application"):
        left.connect(foreign)

    class Plain(ProcessFunction):
        def process_element(self, value: Any, ctx: Context) -> None: ...

    connected = left.connect(right)
    with pytest.raises(ArgumentTypeError, match="needs an object of a subclass of CoProcessFunction, got Plain"):
        connected.process(Plain())  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="ProcessFunction, got Sides"):
        left.process(Sides())  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="idle_timeout_ms"):
        connected.process(Sides(), clock="partition", idle_timeout_ms=5)
    connected.process(Sides())
    with pytest.raises(InvalidOperationError, match="already has a process function"):
        connected.process(Sides())
    assert [value for _, value, _ in gathered(connected.process(Sides(), name="second"))] == []
    assert "StreamingDataFrame(left" in repr(connected)
    app.describe()
