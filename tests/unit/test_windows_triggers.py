"""Windows with triggers, in both modes: programs with known results."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from streamrt import StreamingDataFrame
from streamrt.errors import ProcessingError
from streamrt.kafka import TopicConfig
from streamrt.testing import TopologyTestDriver
from streamrt.windows import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessions,
    EventTimeTrigger,
    PurgingTrigger,
    Trigger,
    WindowContext,
)
from tests.unit.apps import application

pytestmark = pytest.mark.usefixtures("processing_mode")

Record = tuple[str, Any, int]
Build = Callable[[StreamingDataFrame], StreamingDataFrame]
CLOCKS = pytest.mark.parametrize("clock", ["watermark", "partition"])
END = ("end of time", 0, 10_000_000)


class Play:
    """An application with windows, and its results: key, value and timestamp."""

    def __init__(self, build: Build, *, partitions: int = 1, sides: Sequence[str] = ("late",), start: int = 0) -> None:
        self.app = application()
        self.topic = self.app.topic(
            "in", key_deserializer="str", key_serializer="str", config=TopicConfig(partitions, 1)
        )
        frame = build(self.app.dataframe(self.topic))
        self.results = self._gathered(frame)
        self.side = {tag: self._gathered(frame.side_output(tag)) for tag in sides}
        self.driver = TopologyTestDriver(self.app, start=start)

    def pipe(self, *records: Record, partition: int | None = None) -> list[Any]:
        """Send records (key, value, timestamp) through it; return the new results, except those of the last key."""
        before = len(self.results)
        for key, value, timestamp in records:
            where: dict[str, Any] = {} if partition is None else {"partition": partition}
            self.driver.pipe(self.topic, value, key=key, timestamp=timestamp, **where)
        return [result for result in self.results[before:] if result[0] != END[0]]

    def advance(self, by: int) -> list[Any]:
        before = len(self.results)
        self.driver.advance(by)
        return self.results[before:]

    @staticmethod
    def _gathered(frame: StreamingDataFrame) -> list[Any]:
        found: list[Any] = []
        frame.update(lambda value, key, time, headers: found.append((key, value, time)), metadata=True)
        return found


def numbers(*timestamps: int) -> list[Record]:
    return [("a", timestamp, timestamp) for timestamp in timestamps]


def values(results: Sequence[Any]) -> list[Any]:
    return [value["value"] for _, value, _ in results]


@CLOCKS
def test_allowed_lateness_and_late_records(clock: Any) -> None:
    play = Play(
        lambda sdf: sdf.tumbling_window(5000, grace_ms=2000).count().trigger(EventTimeTrigger(), closing_strategy=clock)
    )
    assert play.pipe(("a", 1, 1000), ("a", 2, 4000)) == []
    assert play.pipe(("x", 3, 5000)) == [("a", {"start": 0, "end": 5000, "value": 2}, 0)]
    assert play.pipe(("a", 4, 3000)) == [("a", {"start": 0, "end": 5000, "value": 3}, 0)]
    assert play.pipe(("x", 5, 7000), ("a", 6, 2000)) == []
    assert play.pipe(END) == [("x", {"start": 5000, "end": 10000, "value": 2}, 5000)]
    assert play.side["late"] == [("a", 6, 2000)]
    view = play.driver.state(play.topic, "a", store="tumbling_window_5000_count_triggered")
    assert view.timers() == []


def test_final_emits_once() -> None:
    play = Play(lambda sdf: sdf.tumbling_window(5000, grace_ms=2000).count().final(closing_strategy="partition"))
    records = [("a", 1, 1000), ("a", 2, 4000), ("x", 3, 5000), ("a", 4, 3000)]
    assert play.pipe(*records) == []
    assert play.pipe(("x", 5, 7000)) == [("a", {"start": 0, "end": 5000, "value": 3}, 0)]
    assert play.pipe(("a", 6, 2000)) == []
    assert play.side["late"] == [("a", 6, 2000)]


def test_sessions_that_merge() -> None:
    """The other partition holds the watermark back by ten seconds."""
    seen: list[Any] = []

    def told(key: Any, ctx: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
        seen.append((ctx.window.start, ctx.window.end, ctx.current_watermark))
        yield [*elements]

    play = Play(lambda sdf: sdf.window(EventTimeSessions(5000)).process(told).trigger(EventTimeTrigger()), partitions=2)
    for timestamp in (1000, 8000, 4000):
        assert play.pipe(*numbers(timestamp), partition=0) == []
    assert play.pipe(("b", 0, 12_000), partition=1) == []
    assert play.pipe(*numbers(30_000), partition=0) == []
    assert play.pipe(("b", 0, 20_000), partition=1) == [("a", [1000, 8000, 4000], 1000), ("b", [0], 12_000)]
    assert seen == [(1000, 13_000, 19_999), (12_000, 17_000, 19_999)]
    assert sorted(play.advance(10_000_000)) == [("a", [30_000], 30_000), ("b", [0], 20_000)]
    assert sorted(bounds for *bounds, _ in seen[2:]) == [[20_000, 25_000], [30_000, 35_000]]


@CLOCKS
def test_merging_sessions_have_no_state_of_a_window(clock: Any) -> None:
    def asks(key: Any, ctx: WindowContext, elements: Any) -> None:
        ctx.window_state.get("x")

    play = Play(lambda sdf: sdf.session_window(5000).count().process(asks).final(clock))
    with pytest.raises(ProcessingError, match="asks asked for the state of a window, but its windows merge"):
        play.pipe(*numbers(1000, 20_000))


@CLOCKS
def test_count_triggers(clock: Any) -> None:
    def windows(trigger: Trigger) -> Play:
        return Play(lambda sdf: sdf.tumbling_window(10_000).collect().trigger(trigger, closing_strategy=clock))

    play = windows(PurgingTrigger(CountTrigger(2)))
    assert values(play.pipe(*numbers(1000, 2000, 3000, 4000, 5000), END)) == [[1000, 2000], [3000, 4000]]
    play = windows(CountTrigger(2))
    assert values(play.pipe(*numbers(1000, 2000, 3000, 4000, 5000), END)) == [[1000, 2000], [1000, 2000, 3000, 4000]]
    assert values(play.pipe(*numbers(10_000_000, 10_000_001))) == [[10_000_000, 10_000_001]]


@CLOCKS
def test_early_results(clock: Any) -> None:
    play = Play(
        lambda sdf: (
            sdf.tumbling_window(15_000)
            .collect()
            .trigger(ContinuousEventTimeTrigger(timedelta(seconds=5)), closing_strategy=clock)
        )
    )
    assert play.pipe(*numbers(1000)) == []
    assert values(play.pipe(*numbers(6000))) == [[1000, 6000]]
    assert values(play.pipe(*numbers(11_000))) == [[1000, 6000, 11_000]]
    assert values(play.pipe(*numbers(16_000))) == [[1000, 6000, 11_000]]


@CLOCKS
def test_hopping_windows_late_for_some(clock: Any) -> None:
    told: list[Any] = []

    def on_late(value: Any, key: Any, timestamp: int, late_by: int, start: int, end: int, *origin: Any) -> bool:
        told.append((value, late_by, start, end))
        return False

    play = Play(
        lambda sdf: (
            sdf.hopping_window(10_000, 5_000, on_late=on_late)
            .collect()
            .trigger(EventTimeTrigger(), closing_strategy=clock)
        )
    )
    assert play.pipe(*numbers(7000)) == []
    assert play.pipe(*numbers(12_000)) == [("a", {"start": 0, "end": 10_000, "value": [7000]}, 0)]
    assert play.pipe(*numbers(8000)) == []
    found = play.pipe(*numbers(16_000))
    assert found == [("a", {"start": 5000, "end": 15_000, "value": [7000, 12_000, 8000]}, 5000)]
    assert play.pipe(*numbers(9000)) == []
    assert play.side["late"] == [("a", 9000, 9000)]
    assert told == [(8000, 4000, 0, 10_000), (9000, 7000, 0, 10_000), (9000, 7000, 5000, 15_000)]


def test_batches_in_a_global_window_are_count_windows() -> None:
    records = [
        (key, number, time) for number, (key, time) in enumerate(zip("abaabbbaab", range(90, 0, -9), strict=True))
    ]
    batches = Play(lambda sdf: sdf.global_window().collect().trigger(PurgingTrigger(CountTrigger(3))), sides=())
    expected = Play(lambda sdf: sdf.tumbling_count_window(3).collect().final(), sides=())
    found = batches.pipe(*records)
    assert found == expected.pipe(*records)
    assert [value for _, value, _ in found][:1] == [{"start": 63, "end": 90, "value": [0, 2, 3]}]
    totals = Play(lambda sdf: sdf.global_window().sum().current(), sides=())
    assert values(totals.pipe(*numbers(5, 3, 4))) == [5, 8, 12]
