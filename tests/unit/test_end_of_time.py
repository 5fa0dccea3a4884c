"""The end of time in a bounded run: windows close, timers fire and lookups give up, stage by stage, in both modes."""

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from streamrt import Context, ProcessFunction, TimeDomain, TimerContext, WatermarkStrategy
from streamrt.dataframe import StreamingDataFrame
from streamrt.errors import ProcessingError, RunnerError, TransactionError
from streamrt.event_time.end_of_time import EndOfTime
from streamrt.joins import BaseField, BaseLookup, LookupBuffer
from streamrt.kafka import TopicConfig
from streamrt.operators import endings
from streamrt.runtime.tasks.chain import collector
from streamrt.testing import InputRecord, TopologyTestDriver, memory
from streamrt.topology import TaskId
from tests.unit.apps import Stage, application

pytestmark = pytest.mark.usefixtures("processing_mode")

GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
STRATEGIES = pytest.mark.parametrize(
    "strategy",
    [
        "key",
        "partition",
        "watermark",
        pytest.param(WatermarkStrategy.for_bounded_out_of_orderness(5_000), id="out_of_orderness"),
        pytest.param(WatermarkStrategy.for_generator(lambda value, timestamp: timestamp - 7), id="generator"),
    ],
)
TEXT: dict[str, Any] = {"key_deserializer": "str", "key_serializer": "str"}
RECORDS = [("a", 1, 12_000), ("b", 2, 13_000), ("a", 4, 15_500), ("c", 8, 31_000), ("b", 16, 26_000), ("a", 32, 47_000)]
FAR = 10_000_000

Windows = dict[str, Callable[[StreamingDataFrame], Any]]
WINDOWS: Windows = {
    "tumbling": lambda sdf: sdf.tumbling_window(5_000, grace_ms=20_000).sum(),
    "hopping": lambda sdf: sdf.hopping_window(10_000, 5_000, grace_ms=20_000).collect(),
    "sliding": lambda sdf: sdf.sliding_window(4_000, grace_ms=20_000).sum(),
    "sliding items": lambda sdf: sdf.sliding_window(4_000, grace_ms=20_000).collect(),
    "session": lambda sdf: sdf.session_window(4_000, grace_ms=20_000).collect(),
}


class Windowed:
    """An application with windows of one kind."""

    def __init__(self, kind: str, strategy: Any, **settings: Any) -> None:
        self.stage = Stage(TEXT, **settings)
        window = WINDOWS[kind](self.stage.sdf)
        window.final(closing_strategy=strategy)
        self.driver = self.stage.drive()

    def pipe(self, *records: tuple[str, int, int]) -> None:
        self.driver.pipe_many(InputRecord("in", value, key, timestamp) for key, value, timestamp in records)

    def found(self) -> list[Any]:
        return sorted((key, value["start"], value["end"], value["value"]) for value, key, *_ in self.driver.outputs())


@GUARANTEES
@STRATEGIES
@pytest.mark.parametrize("kind", WINDOWS)
def test_the_end_closes_the_windows_that_time_would_close(kind: str, strategy: Any, guarantee: str) -> None:
    ended = Windowed(kind, strategy, processing_guarantee=guarantee)
    waited = Windowed(kind, strategy, processing_guarantee=guarantee)
    ended.pipe(*RECORDS)
    ended.driver.end()
    # Records far in the future close the same windows.
    waited.pipe(*RECORDS, *((key, 0, FAR) for key in "abc"))
    waited.driver.advance(timedelta(hours=1))
    expected = [window for window in waited.found() if window[1] < FAR - 10_000]
    found = ended.found()
    assert found == expected
    assert found
    ended.driver.end()
    assert ended.found() == [], "nothing is open any more"
    # No clock has moved: what would not have been late is not late now.
    ended.pipe(("a", 64, 46_500))
    ended.driver.end()
    assert ended.found(), "a record of a later run is counted"


@GUARANTEES
def test_stages_end_one_after_the_other(guarantee: str) -> None:
    app = application(processing_guarantee=guarantee)
    topic = app.topic("in", **TEXT, config=TopicConfig(2, 1))
    totals = app.topic("totals", key_deserializer="str")
    sums = app.dataframe(topic).tumbling_window(5_000).sum().final()
    # In one task: the lower window gets the last results of the upper one.
    longer = sums.apply(lambda window: window["value"]).tumbling_window(15_000, name="longer").sum().final()
    grouped = longer.apply(lambda window: window["value"]).group_by(lambda value: "all", name="all")
    grouped.tumbling_window(60_000).sum().final(closing_strategy="watermark").to_topic(totals)
    driver = TopologyTestDriver(app)
    for number in range(20):
        driver.pipe(topic, 1, key="ab"[number % 2], timestamp=61_000 + 2_000 * number, partition=number % 2)
    driver.end()
    assert [(record.key, record.value["value"], record.timestamp) for record in driver.read(totals)] == [
        ("all", 20, 60_000)
    ]


def test_a_frame_that_meets_its_own_grouping_ends_twice() -> None:
    app = application()
    topic = app.topic("in", **TEXT, config=TopicConfig(2, 1))
    sdf = app.dataframe(topic)
    sums = sdf.tumbling_window(5_000, name="first").sum().final().apply(lambda window: window["value"])
    regrouped = sums.group_by(lambda value: "all", name="all")
    both = sdf.concat(regrouped).tumbling_window(600_000, name="last").sum().final()
    assert len(app.topology.resolve({"in": 2}).streams) == 1
    driver = TopologyTestDriver(app)
    driver.pipe(topic, 1, key="all", timestamp=60_000)
    driver.pipe(topic, 2, key="all", timestamp=61_000)
    driver.end()
    assert sum(output[0]["value"] for output in driver.outputs() if isinstance(output[0], dict)) == 6
    assert both.topics


@GUARANTEES
@STRATEGIES
def test_ends_in_portions_lose_nothing(strategy: str, guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Windowed("tumbling", strategy, processing_guarantee=guarantee)
    ended.pipe(*((f"k{number}", number, 10_000) for number in range(20)))
    monkeypatch.setattr(collector, "_PORTION_S", 0)
    ended.driver.end()
    assert [window[3] for window in sorted(ended.found(), key=lambda window: window[3])] == list(range(20))


def test_a_failed_commit_at_the_end_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Windowed("tumbling", "key", processing_guarantee="exactly-once")
    ended.pipe(*RECORDS)

    def fail(*_: Any, **__: Any) -> None:
        raise TransactionError("another process has taken over")

    with monkeypatch.context() as patched:
        patched.setattr(memory._MemoryTransaction, "commit", fail)
        with pytest.raises(RunnerError):
            ended.driver.end()
    before = ended.found()
    ended.driver.end()
    undisturbed = Windowed("tumbling", "key")
    undisturbed.pipe(*RECORDS)
    undisturbed.driver.end()
    assert before + ended.found() == undisturbed.found()


def test_a_skipped_error_holds_no_window_back() -> None:
    failed: list[str] = []

    def fail(window: dict[str, Any]) -> dict[str, Any]:
        if window["value"] == 3:
            raise ValueError("not this one")
        return window

    def skip(error: Exception, *_: Any) -> bool:
        failed.append(str(error))
        return True

    stage = Stage(TEXT, on_processing_error=skip)
    stage.sdf.tumbling_window(5_000).sum().final().apply(fail)
    driver = stage.drive()
    for number in range(6):
        driver.pipe("in", number, key=f"k{number}", timestamp=10_000)
    driver.end()
    assert sorted(output[0]["value"] for output in driver.outputs()) == [0, 1, 2, 4, 5]
    assert len(failed) == 1


class Timed(ProcessFunction):
    """Registers a timer in both domains for each record."""

    again = 0

    def process_element(self, value: Any, ctx: Context) -> None:
        ctx.register_event_time_timer(ctx.timestamp + 60_000)
        ctx.register_processing_time_timer(ctx.current_processing_time + 60_000)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield [ctx.time_domain is TimeDomain.EVENT_TIME, ctx.current_watermark]
        if self.again and timestamp < 1_000 + self.again * 60_000:
            ctx.register_event_time_timer(timestamp + 60_000)


def timed(function: ProcessFunction, **settings: Any) -> tuple[Stage, TopologyTestDriver]:
    stage = Stage(TEXT, **settings)
    stage.sdf.process(function)
    driver = stage.drive()
    driver.pipe("in", 1, key="a", timestamp=1_000)
    return stage, driver


@GUARANTEES
def test_timers_fire_at_the_end_or_are_dropped(guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    _, driver = timed(Timed(), processing_guarantee=guarantee)
    with caplog.at_level(logging.WARNING, logger="streamrt"):
        driver.end()
    assert [(value, key, time) for value, key, time, _ in driver.outputs()] == [([True, (1 << 63) - 1], "a", 61_000)]
    assert "dropped 1 timers of processing time of Timed (store process_Timed)" in caplog.text
    view = driver.state("in", "a", store="process_Timed")
    assert view.timers() == view.timers(TimeDomain.PROCESSING_TIME) == []
    driver.advance(timedelta(hours=1))
    driver.end()
    assert driver.outputs() == []
    # The watermark of later records is that of an hour without records, and not the end of time.
    driver.pipe("in", 1, key="a", timestamp=2_000)
    driver.pipe("in", 1, key="b", timestamp=3_600_000)
    assert [(value, key, time) for value, key, time, _ in driver.outputs()] == [([True, 3_600_999], "a", 62_000)]


def test_timers_of_timers_fire_as_long_as_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    function = Timed()
    function.again = 5
    _, driver = timed(function)
    driver.end()
    assert [time for _, _, time, _ in driver.outputs()] == [1_000 + 60_000 * number for number in range(1, 6)]
    monkeypatch.setattr(endings, "_MOST_AGAIN", 100)
    endless = Timed()
    endless.again = 1 << 40
    _, driver = timed(endless)
    with pytest.raises(ProcessingError, match=r"timers of Timed have registered a further timer 100 times .* key 'a'"):
        driver.end()


class Unknown(BaseLookup[BaseField]):
    """Finds nothing."""

    def join(self, fields: Any, on: str, value: dict[str, Any], key: Any, timestamp: int, headers: Any) -> None:
        value["found"] = None


def test_lookups_give_up_at_the_end() -> None:
    stage = Stage(TEXT)
    buffer = LookupBuffer(timedelta(hours=1), lambda value: value["found"] is not None, on_timeout="emit")
    stage.sdf.join_lookup(Unknown(), {"found": BaseField()}, buffer=buffer)
    driver = stage.drive()
    driver.pipe("in", {"n": 1}, key="a")
    assert driver.outputs() == []
    driver.end()
    assert [output[0] for output in driver.outputs()] == [{"n": 1, "found": None}]
    # The wall clock has not moved: the next record waits as long as the first.
    driver.pipe("in", {"n": 2}, key="a")
    driver.advance(timedelta(minutes=59))
    assert driver.outputs() == []


def test_only_the_owner_of_all_tasks_ends_time() -> None:
    stage = Stage()
    stage.sdf.tumbling_window(5_000).sum().final()
    end = EndOfTime()
    end.describe(stage.app.topology, {"in": 2})
    first, second = TaskId("in", 0), TaskId("in", 1)
    end.assign([first])
    end.ready([first])
    assert end.due == {}
    end.reach(0)
    assert (dict(end.due), set(end.foreign), end.over) == ({}, {second}, False)
    assert "windows and timers of in[1]" in str(end.refuse_others())
    end.assign([first, second])
    (nodes,) = set(end.due.values())
    assert end.due == {first: nodes}, "the second one cannot be ticked now"
    end.report({first: nodes, TaskId("other", 0): nodes})
    end.ready([first, second])
    assert end.due == {second: nodes}
    end.report({second: nodes})
    assert (end.over, end.wanted) == (True, True)
