"""`WatermarkStrategy`: where it may be given, and what it does between the records of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt import Context, ProcessFunction, TimerContext, WatermarkStrategy
from streamrt.application.application_run import runner_for
from streamrt.config import ProcessingMode
from streamrt.dataframe import StreamingDataFrame
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    InvalidOperationError,
    ProcessingError,
)
from streamrt.event_time.event_time import EventTime
from streamrt.event_time.watermark_bounds import NO_OTHER
from streamrt.kafka import TopicConfig
from streamrt.runs.resident_run import ResidentRunner
from streamrt.runtime.link_messages import Time
from streamrt.runtime.report import StoreTime
from streamrt.topology import TaskId
from tests.unit.apps import Stage
from tests.unit.resident_world import FIRST, SECOND, plain
from tests.unit.resident_world import World as ResidentWorld
from tests.unit.test_windows_portions import PARTITIONS, World, thoroughly
from tests.unit.test_windows_properties import histories, windows
from tests.unit.window_model import TIMED, Record, Window, on_frame

SECONDS = timedelta(seconds=1)
FIVE = WatermarkStrategy.for_bounded_out_of_orderness(5)
PUNCTUATED = WatermarkStrategy.for_generator(lambda value, timestamp: value)
in_both_modes = pytest.mark.usefixtures("processing_mode")


class Alarms(ProcessFunction):
    """Tells of keys without a record for ten milliseconds."""

    def process_element(self, value: Any, ctx: Context) -> None:
        last = ctx.state.value("last")
        if last.value() is not None:
            ctx.delete_event_time_timer(last.value() + 10)
        last.update(ctx.timestamp)
        ctx.register_event_time_timer(ctx.timestamp + 10)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield [timestamp, ctx.current_watermark]


# -- The object ----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PF-J2")
def test_equal_strategies_are_equal_however_durations_are_given() -> None:
    assert WatermarkStrategy(5_000, 60_000, alignment=1_000) == WatermarkStrategy(
        5 * SECONDS, 60 * SECONDS, alignment=SECONDS
    )
    strategy = WatermarkStrategy(5 * SECONDS, None, "hold")
    assert (strategy.out_of_orderness_ms, strategy.idle_ms, strategy.alignment_ms) == (5_000, None, None)
    assert strategy == WatermarkStrategy.for_bounded_out_of_orderness(5_000).with_idleness(None, "hold")
    assert WatermarkStrategy.for_monotonous_timestamps() == WatermarkStrategy() == WatermarkStrategy(0, 10_000)
    assert WatermarkStrategy().with_alignment(7).alignment == timedelta(milliseconds=7)
    assert len({WatermarkStrategy(0, 10_000), WatermarkStrategy(timedelta(0), 10 * SECONDS)}) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"out_of_orderness": -1}, ArgumentValueError, r"out_of_orderness=...\) must be 0 ms or more"),
        ({"out_of_orderness": None}, ArgumentTypeError, "out_of_orderness"),
        ({"idle_timeout": 0}, ArgumentValueError, r"idle_timeout=...\) must be 1 ms or more"),
        ({"idle_timeout": "5s"}, ArgumentTypeError, "an int of milliseconds or a timedelta, got str"),
        ({"alignment": 0}, ArgumentValueError, r"alignment=...\) must be 1 ms or more"),
        ({"alignment": 5, "idle_timeout": None}, ArgumentValueError, "would wait forever"),
        ({"when_all_idle": "stop"}, ArgumentValueError, "'advance' .* or 'hold'"),
        ({"when_all_idle": 5}, ArgumentTypeError, "'advance' .* or 'hold'"),
        ({"generator": 5}, ArgumentTypeError, "must be a function, got int"),
        ({"generator": max, "out_of_orderness": 1}, ArgumentValueError, "has no effect with a generator"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        WatermarkStrategy(**arguments)


# -- Where it is chosen --------------------------------------------------------------------------------------------------


def chosen(stage: Stage) -> list[WatermarkStrategy]:
    topology = stage.app.topology
    return [strategy for stream in topology.streams for strategy in topology.watermarks(stream).values()]


def by_window(kind: str) -> Callable[..., Any]:
    sizes = (10, 5) if kind == "hopping" else (10,)
    return lambda sdf, clock, **options: (
        getattr(sdf, f"{kind}_window")(*sizes).min().final(*([] if clock is None else [clock]), **options)
    )


def by_function(sdf: StreamingDataFrame, clock: Any, **options: Any) -> Any:
    return sdf.process(Alarms(), clock=clock, **options)


CHOICES = pytest.mark.parametrize("choose", [*map(by_window, TIMED), by_function], ids=[*TIMED, "process"])


@CHOICES
def test_names_and_objects_are_one(choose: Callable[..., Any]) -> None:
    for clock, options, strategy in (
        ("watermark", {}, WatermarkStrategy()),
        ("watermark", {"idle_timeout_ms": 5}, WatermarkStrategy(0, 5)),
        ("watermark", {"when_all_idle": "hold"}, WatermarkStrategy(when_all_idle="hold")),
        (FIVE, {}, FIVE),
        (PUNCTUATED, {}, PUNCTUATED),
    ):
        stage = Stage()
        choose(stage.sdf, clock, **options)
        assert chosen(stage) == [strategy]


@pytest.mark.rows("PF-B2", "PF-J1")
@CHOICES
def test_the_strategy_of_a_topic_is_the_default_below(choose: Callable[..., Any]) -> None:
    for clock, options, found in (
        (None, {}, [FIVE]),
        ("watermark", {}, [FIVE]),
        ("watermark", {"idle_timeout_ms": 7}, [WatermarkStrategy(5, 7)]),
        (WatermarkStrategy(), {}, [WatermarkStrategy()]),
        ("partition", {}, []),
    ):
        stage = Stage({"watermark_strategy": FIVE})
        choose(stage.sdf, clock, **options)
        assert chosen(stage) == found
    stage = Stage({"watermark_strategy": FIVE, "config": TopicConfig(2, 1)})
    choose(stage.sdf.filter(bool).group_by("user"), None)
    assert chosen(stage) == [FIVE]


def test_topics_with_different_strategies_need_a_choice() -> None:
    stage = Stage({"watermark_strategy": FIVE})
    both = stage.sdf.concat(stage.app.dataframe(stage.app.topic("more")))
    with pytest.raises(InvalidOperationError, match=r"topics in and more have different .* with closing_strategy="):
        both.tumbling_window(10).min().final()
    with pytest.raises(InvalidOperationError, match=r"choose the clock of what needs both with clock="):
        both.process(Alarms())
    both.tumbling_window(10).min().final("key")
    both.process(Alarms(), clock=FIVE)
    assert chosen(stage) == [FIVE]


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda sdf: by_function(sdf, FIVE, idle_timeout_ms=5), "idle_timeout_ms=5 is given twice"),
        (lambda sdf: by_window("tumbling")(sdf, FIVE, when_all_idle="hold"), "when_all_idle='hold' is given twice"),
        (lambda sdf: by_window("session")(sdf.group_by("user"), PUNCTUATED), "cannot be used behind group_by"),
        (lambda sdf: by_function(sdf.group_by("user"), PUNCTUATED), "cannot be used behind group_by"),
        (lambda sdf: by_function(sdf, "watermarks"), "or a WatermarkStrategy"),
        (lambda sdf: by_window("sliding")(sdf, 5), "or a WatermarkStrategy"),
    ],
)
def test_what_a_place_cannot_have_is_refused_there(define: Callable[[Any], Any], message: str) -> None:
    with pytest.raises((ConfigurationError, InvalidOperationError), match=message):
        define(Stage().sdf)


def test_a_topic_takes_no_generator_and_no_name() -> None:
    with pytest.raises(ArgumentValueError, match=r"topic 'in' cannot have a generator.* closing_strategy="):
        Stage({"watermark_strategy": PUNCTUATED})
    with pytest.raises(ArgumentTypeError, match="must be a WatermarkStrategy, got str"):
        Stage({"watermark_strategy": "watermark"})
    stage = Stage({"watermark_strategy": FIVE})
    assert stage.source.with_config(TopicConfig(3, 1)).watermark_strategy == FIVE


# -- What it does --------------------------------------------------------------------------------------------------------


def starts(stage: Stage, *records: tuple[Any, int]) -> list[list[int]]:
    """Send values with timestamps through; return the starts of the windows that each of them closes."""
    found = []
    with stage.drive() as driver:
        for value, timestamp in records:
            driver.pipe(stage.source, value, key=b"k", timestamp=timestamp)
            found.append([output[0]["start"] for output in driver.outputs()])
    return found


@pytest.mark.rows("PF-J3", "PF-J10")
@in_both_modes
def test_out_of_orderness_holds_windows_open_for_older_records() -> None:
    stage = Stage()
    stage.sdf.tumbling_window(10).count().final(FIVE)
    assert starts(stage, (1, 3), (1, 14), (1, 9), (1, 15), (1, 9), (1, 25)) == [[], [], [], [0], [], [10]]
    stage = Stage()
    stage.sdf.tumbling_window(10, grace_ms=2).count().final(FIVE)
    assert starts(stage, (1, 3), (1, 16), (1, 17)) == [[], [], [0]]


@pytest.mark.rows("PF-J3")
@in_both_modes
def test_out_of_orderness_holds_timers_back() -> None:
    stage = Stage()
    stage.sdf.process(Alarms(), clock=FIVE)
    with stage.drive() as driver:
        for key, timestamp in ((b"a", 0), (b"b", 15), (b"c", 16)):
            assert driver.outputs() == []
            driver.pipe(stage.source, 1, key=key, timestamp=timestamp)
        # A watermark of 10 says that no record with a timestamp of 10 follows.
        assert [output[0] for output in driver.outputs()] == [[10, 10]]


@pytest.mark.rows("PF-J12")
@in_both_modes
def test_a_generator_makes_watermarks_of_records() -> None:
    stage = Stage()
    stage.sdf.tumbling_window(10).count().final(PUNCTUATED)
    records = (None, 3), (None, 50), (8, 9), (9, 60), (None, 61), (5, 62), (60, 63)
    assert starts(stage, *records) == [[], [], [], [0], [], [], [50]]
    stage = Stage()
    stage.sdf.process(Alarms(), clock=PUNCTUATED)
    with stage.drive() as driver:
        for key, value, timestamp in ((b"a", None, 0), (b"b", None, 99), (b"b", 9, 99), (b"b", 10, 99)):
            assert driver.outputs() == []
            driver.pipe(stage.source, value, key=key, timestamp=timestamp)
        assert [output[0] for output in driver.outputs()] == [[10, 10]]


@in_both_modes
@pytest.mark.parametrize("choose", [by_window("tumbling"), by_function])
def test_a_record_whose_generator_fails_has_no_effect(choose: Callable[..., Any]) -> None:
    stage = Stage(on_processing_error=lambda error, row, logger: isinstance(error, ArgumentTypeError))
    choose(stage.sdf, PUNCTUATED)
    with stage.drive() as driver:
        driver.pipe(stage.source, "no time", key=b"k", timestamp=5)
        driver.pipe(stage.source, 1_000, key=b"other", timestamp=5)
        found = {output[1] for output in driver.outputs()}
    assert found == {b"other"}
    stage = Stage()
    choose(stage.sdf, PUNCTUATED)
    with pytest.raises(ProcessingError, match="must return an int in milliseconds or None, but returned str"):
        stage.outputs("no time", key=b"k", timestamp=5)


@pytest.mark.rows("PF-C12", "PF-G37", "PF-J9")
@in_both_modes
def test_out_of_orderness_counts_behind_group_by_too() -> None:
    stage = Stage({"config": TopicConfig(2, 1), "key_deserializer": "str", "watermark_strategy": FIVE})
    frame = stage.sdf.group_by(lambda value: "all", name="all")
    frame.tumbling_window(10).count().final()
    found = []
    with stage.drive() as driver:
        for timestamp in (3, 14, 9, 15, 9, 24, 25):
            for partition in range(2):
                driver.pipe(stage.source, 1, key="k", timestamp=timestamp, partition=partition)
            found.append([output[0]["value"] for output in driver.outputs()])
    assert found == [[], [], [], [4], [], [], [4]]


@pytest.mark.parametrize("mode", ["micro-batch", "resident"])
def test_alignment_needs_resident_tasks(mode: ProcessingMode) -> None:
    stage = Stage(processing_mode=mode)
    stage.sdf.process(Alarms(), clock=WatermarkStrategy(alignment=5))
    if mode == "resident":
        assert runner_for(stage.app.config, stage.app.topology) is ResidentRunner
        return
    with pytest.raises(ConfigurationError, match="'process_Alarms' needs processing_mode='resident'"):
        runner_for(stage.app.config, stage.app.topology)


# -- Between records -----------------------------------------------------------------------------------------------------


def played(
    build: Callable[[StreamingDataFrame], Any], mode: ProcessingMode, records: Sequence[Record], others: int | None
) -> dict[Any, list[Any]]:
    """Return what one batch with all records puts out, by partition."""
    world = World(lambda sdf: [build(sdf).apply(lambda value: ["out", value])], "at-least-once", mode)
    world.hear_of_others(others)
    inputs = [[record for record in records if record.partition == number] for number in range(PARTITIONS)]
    world.feed(inputs, [len(own) for own in inputs])
    world.close()
    return world.outputs()


def test_a_backlog_raises_no_alarm_for_keys_that_never_were_quiet(processing_mode: ProcessingMode) -> None:
    """All timers after the batch would see the state of its end: key b has been quiet, and no one would tell."""
    records = [Record(b"a", timestamp, 0) for timestamp in range(0, 100, 5)]
    records[3:3] = [Record(b"b", 12, 0)]
    records += [Record(b"b", 96, 0)]

    def build(sdf: StreamingDataFrame) -> StreamingDataFrame:
        return sdf.process(Alarms(), clock="watermark")

    found = played(build, processing_mode, records, NO_OTHER)
    assert [(key, timestamp) for key, timestamp, _ in found[0, "out"]] == [(b"b", 22)]
    assert played(build, processing_mode, records, None) == {}, "the last record of b deletes its timer"
    assert played(build, processing_mode, records, 22) == {}, "the others have not passed the timer"
    assert played(build, processing_mode, records, 23) == found | {(0, "out"): [(b"b", 22, [22, 22])]}


@pytest.mark.slow
@thoroughly
@given(window=windows(closing=["watermark"]), records=histories(partitions=PARTITIONS, most=40))
def test_without_others_a_watermark_is_the_clock_of_the_partition(
    processing_mode: ProcessingMode, window: Window, records: list[Record]
) -> None:
    by_watermark, by_partition = (
        played(lambda sdf, each=each: on_frame(sdf, each), processing_mode, records, NO_OTHER)  # type: ignore[misc]
        for each in (window, replace(window, closing="partition"))
    )
    assert by_watermark == by_partition


TASKS = [TaskId("in", number) for number in range(4)]
STORE = "tumbling_window_10000_count"


def event_time(strategy: WatermarkStrategy) -> EventTime:
    stage = Stage({"config": TopicConfig(len(TASKS), 1)})
    stage.sdf.tumbling_window(10_000).count().final(strategy)
    found = EventTime(stage.app.topology, {"in": len(TASKS)})
    found.assign(TASKS)
    found.ready(TASKS)
    return found


def see(known: EventTime, times: dict[TaskId, int | None]) -> None:
    known.report({(task, STORE): StoreTime(time, None) for task, time in times.items()}, {})


def test_idle_partitions_are_no_others() -> None:
    known = event_time(WatermarkStrategy(0, 100))
    assert known.others() == {}, "nobody knows yet where the others are"
    see(known, dict(zip(TASKS, (5, 3, 9, 7), strict=True)))
    assert [known.others()[task][STORE] for task in TASKS] == [3, 5, 3, 3]
    known.at_end(TASKS[:2])
    known.elapse(100)
    assert [known.others()[task][STORE] for task in TASKS] == [7, 7, 7, 9]
    known.at_end()
    known.elapse(100)
    assert [known.others()[task][STORE] for task in TASKS] == [NO_OTHER] * 4
    known.restart(TASKS[:1])
    assert set(known.others()) == {TASKS[0]}, "what was read again may be older"


times = st.lists(st.one_of(st.none(), st.integers(0, 50)), min_size=len(TASKS), max_size=len(TASKS))


@given(times, st.sets(st.sampled_from(TASKS)))
def test_own_and_others_are_the_watermark(found: list[int | None], ended: set[TaskId]) -> None:
    known = event_time(WatermarkStrategy(0, 100))
    see(known, {task: time for task, time in zip(TASKS, found, strict=True) if time is not None})
    known.at_end(ended)
    known.elapse(100)
    others, watermarks = known.others(), known.watermarks()
    for task, own in zip(TASKS, found, strict=True):
        if task in ended or own is None:
            continue
        both = None if task not in others else min(own, others[task][STORE])
        assert both == watermarks[task].get(STORE), (task, others, watermarks)


@pytest.mark.rows("PF-J7")
def test_partitions_that_run_ahead_wait_for_the_slowest_that_is_not_idle() -> None:
    known = event_time(WatermarkStrategy(0, 100, alignment=10))
    assert known.ahead() == set()
    see(known, dict(zip(TASKS, (5, 16, 15, None), strict=True)))
    assert known.ahead() == {TASKS[1]}, "one without a record holds nobody back"
    see(known, {TASKS[3]: 3})
    assert known.ahead() == set(TASKS[1:3])
    known.at_end([TASKS[3]])
    known.elapse(99)
    assert known.ahead() == set(TASKS[1:3])
    known.elapse(1)
    assert known.ahead() == {TASKS[1]}
    see(known, {TASKS[0]: 6})
    assert known.ahead() == set()


@given(times, st.sets(st.sampled_from(TASKS)), st.integers(1, 20))
def test_the_slowest_never_waits(found: list[int | None], ended: set[TaskId], alignment: int) -> None:
    known = event_time(WatermarkStrategy(0, 100, alignment=alignment))
    see(known, {task: time for task, time in zip(TASKS, found, strict=True) if time is not None})
    known.at_end(ended)
    known.elapse(100)
    active = {task: time for task, time in zip(TASKS, found, strict=True) if task not in ended and time is not None}
    slowest = min(active.values(), default=0)
    assert known.ahead() == {task for task, time in active.items() if time > slowest + alignment}


def test_stores_do_not_wait_for_each_other_crosswise() -> None:
    """With one bound for each store, both tasks would wait: each is ahead in one of the stores."""
    stage = Stage({"config": TopicConfig(2, 1)})
    for name in ("a", "b"):
        stage.sdf.tumbling_window(10_000, name=name).count().final(WatermarkStrategy(alignment=5))
    known = EventTime(stage.app.topology, {"in": 2})
    known.assign(TASKS[:2])
    known.ready(TASKS[:2])
    first, second = sorted(stage.app.topology.watermarks("in"))
    found = {(TASKS[0], first): 100, (TASKS[0], second): 0, (TASKS[1], first): 0, (TASKS[1], second): 100}
    known.report({place: StoreTime(time, None) for place, time in found.items()}, {})
    assert known.ahead() == set()


@pytest.mark.rows("PF-J7")
def test_a_task_that_is_ahead_reads_nothing_until_the_others_have_come() -> None:
    world = ResidentWorld(plain)
    world.begin(FIRST, SECOND)
    world.link.inbox.append(Time({}, frozenset(), ahead=frozenset({TaskId(*FIRST)})))
    world.steps()
    world.put(FIRST, *range(5))
    world.put(SECOND, *range(5, 10))
    committed = world.clients.offsets
    world.until(lambda: committed.get(SECOND) == 5)
    world.steps(20)
    assert not committed.get(FIRST)
    assert FIRST not in world.task._feed.ends(), "it waits, so it is never idle"
    assert TaskId(*FIRST) not in world.task._pausing, "ticks go on"
    world.link.inbox.append(Time({}, frozenset()))
    world.until(lambda: committed.get(FIRST) == 5)


def test_records_that_were_read_already_wait_too() -> None:
    world = ResidentWorld(plain)
    world.begin(FIRST, SECOND)
    world.put(FIRST, *range(5))
    world.task._turns.add(world.task._poll_records())
    world.link.inbox.append(Time({}, frozenset(), ahead=frozenset({TaskId(*FIRST)})))
    world.steps(20)
    assert not world.clients.offsets.get(FIRST)
    world.link.inbox.append(Time({}, frozenset()))
    world.until(lambda: world.clients.offsets.get(FIRST) == 5)
