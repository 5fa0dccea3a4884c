"""Process functions with timers and side outputs, in both modes."""

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from streamrt import Application, Context, ProcessFunction, RocksDBOptions, TaskContext, TimeDomain, TimerContext
from streamrt.dataframe import StreamingDataFrame
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidOperationError,
    ProcessingError,
    RunnerError,
    StateError,
)
from streamrt.kafka import TopicConfig
from streamrt.kafka.partitioner import partition_for
from streamrt.state import MemoryStore
from streamrt.testing import TopologyTestDriver
from tests.known_programs.functions import Batches, Sessions
from tests.unit.apps import Stage, application

pytestmark = pytest.mark.usefixtures("processing_mode")

Record = tuple[str, Any, int]
BEFORE_ALL = -(1 << 63)
CLOCKS = pytest.mark.parametrize("clock", ["watermark", "partition"])


def gathered(frame: StreamingDataFrame) -> list[Record]:
    """Return a list that gets key, value and timestamp of the records of a frame."""
    found: list[Record] = []
    frame.update(lambda value, key, time, headers: found.append((key, value, time)), metadata=True)
    return found


class Play:
    """An application with a process function, and its results."""

    def __init__(self, function: ProcessFunction, *, start: int = 0, **arguments: Any) -> None:
        self.app = application()
        self.topic = self.app.topic("in", key_deserializer="str", key_serializer="str")
        self.frame = self.app.dataframe(self.topic).process(function, **arguments)
        self.results = gathered(self.frame)
        self.side = {tag: gathered(self.frame.side_output(tag)) for tag in function.outputs if tag != "unread"}
        self.driver = TopologyTestDriver(self.app, start=start)

    def pipe(self, *records: Record) -> list[Record]:
        """Send records (key, value, timestamp) through it; return the new results."""
        before = len(self.results)
        for key, value, timestamp in records:
            self.driver.pipe(self.topic, value, key=key, timestamp=timestamp)
        return self.results[before:]

    def advance(self, by: int | timedelta) -> list[Record]:
        before = len(self.results)
        self.driver.advance(by)
        return self.results[before:]


SESSIONS: list[Record] = [("a", 0, 1_000), ("b", 0, 1_500), ("a", 0, 2_000), ("c", 0, 70_000)]


@pytest.mark.rows("PF-E2", "PF-E7", "PF-E9")
@CLOCKS
def test_the_driver_shows_state_and_timers(clock: Any) -> None:
    play = Play(Sessions(), clock=clock)
    play.pipe(*SESSIONS)
    view = play.driver.state(play.topic, "c", store="process_Sessions")
    assert (view.value("count"), view.timers(), view.timers(TimeDomain.PROCESSING_TIME)) == (1, [130_000], [])
    assert play.driver.state(play.topic, "a", store="process_Sessions").timers() == []
    play = Play(Batches(), clock=clock)
    play.pipe(("k", "a", 0))
    view = play.driver.state(play.topic, "k", store="process_Batches")
    assert (view.timers(), view.timers(TimeDomain.PROCESSING_TIME)) == ([], [5_000])


@pytest.mark.rows("PF-C10", "PF-E1", "PF-E3", "PF-E4", "PF-E5", "PF-E6", "PF-E10", "PF-E15", "PF-H2")
@CLOCKS
def test_the_context_of_calls(clock: Any) -> None:
    seen: list[Any] = []
    kept: list[Context] = []

    class Looks(ProcessFunction):
        outputs: ClassVar[tuple[str, ...]] = ("side", "unread")

        def open(self, context: TaskContext) -> None:
            seen.append((context.name, context.topics, context.topic, context.partition, context.partitions))

        def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
            kept.append(ctx)
            seen.append((ctx.key, ctx.timestamp, ctx.headers, ctx.current_watermark, ctx.current_processing_time))
            ctx.register_event_time_timer(ctx.timestamp + 10)
            ctx.output("side", value)
            ctx.output("side", value, timestamp=5)
            ctx.output("unread", value)
            yield value
            yield value + 1

        def on_timer(self, timestamp: int, ctx: TimerContext) -> None:
            kept.append(ctx)
            seen.append((ctx.key, ctx.timestamp, ctx.headers, ctx.current_watermark, ctx.time_domain))
            ctx.output("side", "timer")

        def close(self) -> None:
            seen.append("closed")

    play = Play(Looks(), start=77, clock=clock, name="looks")
    assert play.pipe(("a", 1, 100), ("a", 3, 200)) == [("a", 1, 100), ("a", 2, 100), ("a", 3, 200), ("a", 4, 200)]
    assert play.side["side"] == [("a", 1, 100), ("a", 1, 5), ("a", 3, 200), ("a", 3, 5), ("a", "timer", 110)]
    play.driver.close()
    assert seen == [
        ("process_looks", ("in",), "in", 0, 1),
        ("a", 100, None, BEFORE_ALL, 77),
        ("a", 200, None, 99, 77),
        ("a", 110, None, 199, TimeDomain.EVENT_TIME),
        "closed",
    ]
    uses: list[Callable[[Context], Any]] = [
        lambda context: context.state,
        lambda context: context.output("side", 1),
        lambda context: context.register_event_time_timer(1),
        lambda context: context.delete_processing_time_timer(1),
        lambda context: context.current_watermark,
        lambda context: context.current_processing_time,
    ]
    for context in kept:
        for use in uses:
            with pytest.raises(StateError, match=r"the context of Looks was used after its call"):
                use(context)


@pytest.mark.rows("PF-J5", "PF-J8")
def test_timers_wait_for_all_partitions_unless_they_are_idle() -> None:
    app = application()
    topic = app.topic("in", key_deserializer="str", config=TopicConfig(2, 1))
    results: list[Any] = []
    frame = app.dataframe(topic).process(Sessions(), idle_timeout_ms=5_000)
    frame.update(lambda value, key, time, headers: results.append((key, time)), metadata=True)
    driver = TopologyTestDriver(app)
    driver.pipe(topic, 0, key="a", timestamp=1_000, partition=0)
    driver.pipe(topic, 0, key="b", timestamp=200_000, partition=1)
    assert results == []
    driver.pipe(topic, 0, key="c", timestamp=150_000, partition=0)
    assert results == [("a", 61_000)]
    # Partition 0 is idle, then both are: time advances with the wall clock.
    driver.advance(5_000)
    assert results == [("a", 61_000)]
    driver.advance(60_000)
    assert sorted(results) == [("a", 61_000), ("b", 260_000), ("c", 210_000)]


@pytest.mark.rows("PF-E14")
def test_keys_of_all_types_have_timers_of_their_own() -> None:
    app = application()
    topic = app.topic("in", key_deserializer="json", key_serializer="json")
    results: list[Any] = []
    frame = app.dataframe(topic).process(Sessions(), clock="partition")
    frame.update(lambda value, key, time, headers: results.append(key), metadata=True)
    driver = TopologyTestDriver(app)
    keys: list[Any] = [None, "", "a", 1, 1.5, True, {"b": [1]}, "x" * 300]
    for key in keys:
        driver.pipe(topic, 0, key=key, timestamp=0)
    driver.pipe(topic, 0, key="end", timestamp=100_000)
    assert sorted(results, key=repr) == sorted(keys, key=repr)


def test_behind_group_by_and_with_a_store_in_memory() -> None:
    stage = Stage()
    stage.sdf.register_store(MemoryStore)
    frame = stage.sdf.group_by("shop").process(Sessions())
    results: list[Any] = []
    frame.update(lambda value, key, time, headers: results.append((key, value["count"])), metadata=True)
    driver = stage.drive()
    for shop, timestamp in (("s", 0), ("s", 1), ("other", 100_000)):
        driver.pipe(stage.source, {"shop": shop}, key=b"k", timestamp=timestamp)
    assert results == [("s", 2)]


def test_queries_see_what_has_expired_by_the_records_of_the_partition() -> None:
    class Short(ProcessFunction):
        def process_element(self, value: Any, ctx: Context) -> None:
            ctx.state.value(value, ttl=timedelta(seconds=1)).update(1)

    app = application(rocksdb_options=RocksDBOptions(max_evictions_per_flush=1))
    topic = app.topic("in", key_deserializer="str", config=TopicConfig(2, 1))
    app.dataframe(topic).process(Short())
    driver = TopologyTestDriver(app)
    # The other partition has no records yet, so there is no watermark; and some entries stay after they have expired.
    for value, timestamp in (("first", 1_000), ("second", 1_000), ("third", 1_999), ("fourth", 2_000)):
        driver.pipe(topic, value, key="k", timestamp=timestamp, partition=partition_for(b"k", 2))
    found = driver.query_state("process_Short", "k")
    assert [found.get(name) for name in ("first", "second", "third", "fourth")] == [None, None, 1, 1]


def test_a_timer_that_fails_is_not_fired_again() -> None:
    skipped: list[Any] = []

    class Fails(Sessions):
        def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
            if ctx.key == "b":
                raise ValueError("no b")
            yield from super().on_timer(timestamp, ctx)

    def skip(error: Exception, record: Any, logger: logging.Logger) -> bool:
        skipped.append(str(error))
        return True

    app = application(on_processing_error=skip)
    topic = app.topic("in", key_deserializer="str")
    results: list[Any] = []
    app.dataframe(topic).process(Fails()).update(lambda value, key, t, h: results.append(key), metadata=True)
    driver = TopologyTestDriver(app)
    for key, value, timestamp in [*SESSIONS, ("d", 0, 71_000)]:
        driver.pipe(topic, value, key=key, timestamp=timestamp)
    assert (results, skipped) == (["a"], ["no b"])
    play = Play(Fails(), clock="partition")
    with pytest.raises(ProcessingError, match=r"process-1 \(Fails, process_Fails\) .*ValueError: no b"):
        play.pipe(*SESSIONS)


@CLOCKS
def test_a_timer_that_is_always_due_is_stopped(clock: Any) -> None:
    class Runaway(ProcessFunction):
        def process_element(self, value: Any, ctx: Context) -> None:
            ctx.register_event_time_timer(5)

        def on_timer(self, timestamp: int, ctx: TimerContext) -> None:
            ctx.register_event_time_timer(6 if timestamp == 5 else 5)

    with pytest.raises(ProcessingError, match="without a later time than"):
        Play(Runaway(), clock=clock).pipe(("a", 0, 10), ("a", 0, 20))


class Wrong(ProcessFunction):
    """Does what the value says."""

    def process_element(self, value: Any, ctx: Context) -> Any:
        uses: dict[str, Callable[[], Any]] = {
            "timer": lambda: ctx.register_event_time_timer(5),
            "tag": lambda: ctx.output("side", 1),
            "dict": lambda: {"a": 1},
            "text": lambda: "text",
            "number": lambda: 5,
        }
        return uses[value]()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("timer", r"Wrong registers a timer, but has no on_timer: define on_timer\(self, timestamp, ctx\)"),
        ("tag", "Wrong has no side output 'side'; its outputs: none"),
        ("dict", "Wrong.process_element must return an iterable of results or None, but returned dict: yield each"),
        ("text", "but returned str"),
        ("number", "but returned int"),
    ],
)
def test_wrong_uses(value: str, message: str) -> None:
    with pytest.raises(ProcessingError, match=message):
        Play(Wrong()).pipe(("k", value, 0))


@pytest.mark.parametrize("time", [-1, 1 << 63, 1.5, "5", None, True])
def test_wrong_times_of_timers(time: Any) -> None:
    class Registers(Sessions):
        def process_element(self, value: Any, ctx: Context) -> None:
            ctx.register_event_time_timer(time)

    with pytest.raises(ProcessingError, match="the time of a timer must be"):
        Play(Registers()).pipe(("k", 0, 0))


class Outputs(Sessions):
    """A function whose side outputs a test sets."""


@pytest.mark.parametrize(
    ("arguments", "outputs", "error", "message"),
    [
        ({"clock": "key"}, (), ArgumentValueError, "'watermark' .* or 'partition'"),
        ({"clock": 5}, (), ArgumentTypeError, "'watermark' .* or 'partition'"),
        ({"clock": "partition", "idle_timeout_ms": 5}, (), ArgumentValueError, "idle_timeout_ms=5.* has no effect"),
        (
            {"clock": "partition", "when_all_idle": "hold"},
            (),
            ArgumentValueError,
            "when_all_idle='hold'.* has no effect",
        ),
        ({"when_all_idle": "stop"}, (), ArgumentValueError, "must be 'advance' .* or 'hold'"),
        ({"idle_timeout_ms": 0}, (), ArgumentValueError, "idle_timeout_ms"),
        ({"grace_ms": -1}, (), ArgumentValueError, "grace_ms"),
        ({"name": ""}, (), ArgumentValueError, "non-empty string"),
        ({"name": "a.b"}, (), ArgumentValueError, "cannot be part of a store's name"),
        ({}, "late", ArgumentTypeError, r"Outputs.outputs must be a tuple of names"),
        ({}, ("a", ""), ArgumentTypeError, "must be a tuple of names"),
        ({}, ("a", "a"), ArgumentValueError, "names a side output twice"),
    ],
)
def test_wrong_arguments(arguments: Any, outputs: Any, error: type[Exception], message: str) -> None:
    function = Outputs()
    function.outputs = outputs  # type: ignore[misc]
    with pytest.raises(error, match=message):
        Stage().sdf.process(function, **arguments)


def test_what_is_no_process_function() -> None:
    with pytest.raises(ArgumentTypeError, match="got the class Sessions"):
        Stage().sdf.process(Sessions)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="got function"):
        Stage().sdf.process(lambda value: value)  # type: ignore[arg-type]


@pytest.mark.rows("PF-C8")
def test_a_second_function_of_a_class_needs_a_name() -> None:
    stage = Stage()
    stage.sdf.process(Sessions())
    with pytest.raises(InvalidOperationError, match="already has a process function with its state in the store"):
        stage.sdf.process(Sessions())
    stage.sdf.process(Sessions(), name="other")
    with pytest.raises(ArgumentValueError, match="no side output 'x': it has no side outputs"):
        stage.sdf.process(Sessions(), name="third").side_output("x")


def test_errors_of_open_and_close(caplog: pytest.LogCaptureFixture) -> None:
    class Opens(Sessions):
        failing = True

        def open(self, context: TaskContext) -> None:
            if Opens.failing:
                raise OSError("no database")

        def close(self) -> None:
            raise OSError("not closed")

    play = Play(Opens(), clock="partition")
    with pytest.raises((ProcessingError, RunnerError), match="no database"):
        play.pipe(("a", 0, 0))
    Opens.failing = False
    play = Play(Opens(), clock="partition")
    play.pipe(("a", 0, 0))
    play.driver.close()
    assert "could not release what it has opened" in caplog.text


def test_stores_of_others_have_no_timers() -> None:
    stage = Stage()
    stage.sdf.apply(lambda value, state: value, stateful=True)
    with pytest.raises(StateError, match="has no timers"):
        stage.drive().state(stage.source, b"k").timers()


def test_a_dataframe_under_test_runs_process_functions() -> None:
    app = Application("unused:9092", loglevel=None)
    sdf = app.dataframe(app.topic("in")).process(Sessions(), clock="partition")
    assert sdf.test(1, key="k", timestamp=0) == []
    assert sdf.test(1, key="other", timestamp=60_001) == [({"count": 1}, "k", 60_000, None)]
