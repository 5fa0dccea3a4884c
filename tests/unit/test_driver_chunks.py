"""`TopologyTestDriver.pipe_many`: the same results as piping one by one, and what happens to chunks that fail."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from streamrt import ApplicationStatus, Context, DeadLetters, ProcessFunction, StreamingDataFrame, TimerContext
from streamrt.connectors import BaseSink, BatchingSink, ListSink, SinkBatch
from streamrt.errors import (
    ApplicationStateError,
    ArgumentValueError,
    ProcessingError,
    SerializationError,
    SinkBackpressureError,
    StreamRTError,
)
from streamrt.kafka import TopicConfig
from streamrt.state import MemoryStore, State
from streamrt.testing import InputRecord, TopologyTestDriver
from streamrt.windows import Count, Last
from tests.matrix import OPERATORS, Operator, Surroundings, windowed
from tests.support import LONG, PROCESSING_MODES
from tests.unit.apps import Stage, application

TEXT: dict[str, Any] = {"key_serializer": "str", "key_deserializer": "str"}
in_both_modes = pytest.mark.usefixtures("processing_mode")
both_guarantees = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])


# -- The property ------------------------------------------------------------------------------------------------------


class Alarms(ProcessFunction):
    """Tells of keys without a record for ten milliseconds of event time, and counts."""

    outputs: ClassVar[tuple[str, ...]] = ()

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        last, count = ctx.state.value("last"), ctx.state.value("count", default=0)
        if last.value() is not None:
            ctx.delete_event_time_timer(last.value() + 10)
        last.update(ctx.timestamp)
        count.update(count.value() + 1)
        ctx.register_event_time_timer(ctx.timestamp + 10)
        yield {**value, "count": count.value(), "watermark": ctx.current_watermark}

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield {"n": 0, "g": "g", "quiet since": ctx.state.value("last").value()}
        ctx.state.clear()


def refuse(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse one number."""
    if value["n"] == 3:
        raise ValueError("three")
    return value


def refuse_behind(name: str, value: dict[str, Any], state: State) -> dict[str, Any]:
    """Change state, then refuse one number."""
    state.set(name, state.get(name, 0) + 1)
    return refuse(value)


def late_windows(frame: StreamingDataFrame, around: Surroundings) -> StreamingDataFrame:
    window = frame.tumbling_window(10, name=around.name, on_late=lambda *_: False)
    return windowed(window, final=True)


def watermark_windows(frame: StreamingDataFrame, around: Surroundings) -> StreamingDataFrame:
    window = frame.tumbling_window(10, grace_ms=3, name=around.name)
    return frame_of(window, closing_strategy="watermark")


def frame_of(window: Any, **closing: Any) -> StreamingDataFrame:
    aggregated = window.agg(n=Count(), g=Last("g"))
    frame: StreamingDataFrame = aggregated.final(**closing)
    return frame


MORE: dict[str, Operator] = {
    "expand": lambda frame, around: frame.apply(lambda value: [value, {**value, "n": value["n"] + 1}], expand=True),
    "regroup": lambda frame, around: frame.group_by(lambda value: str(value["n"] % 3), name=around.name),
    "refuse": lambda frame, around: frame.apply(refuse),
    "refuse state": lambda frame, around: frame.apply(partial(refuse_behind, around.name), stateful=True),
    "late": late_windows,
    "watermark": watermark_windows,
    "partition": lambda frame, around: frame_of(
        frame.hopping_window(10, 5, name=around.name), closing_strategy="partition"
    ),
    "process": lambda frame, around: frame.process(Alarms(), name=around.name),
}
KNOWN = {**{name: each for name, each in OPERATORS.items() if name not in ("async", "sliding")}, **MORE}
POLICIES: dict[str, dict[str, Any]] = {
    "fail": {},
    "skip": {"on_processing_error": lambda *_: True},
    "keep": {"on_error": DeadLetters("letters")},
}
chains = st.lists(st.sampled_from(sorted(KNOWN)), min_size=1, max_size=3)
inputs = st.lists(
    st.builds(
        InputRecord,
        topic=st.sampled_from(("left", "left", "right")),
        value=st.fixed_dictionaries({"n": st.integers(0, 6), "g": st.sampled_from("gh")}),
        key=st.sampled_from("abc"),
        timestamp=st.integers(1, 60),
        headers=st.sampled_from((None, [("source", b"test")])),
        partition=st.integers(0, 1),
    ),
    min_size=1,
    max_size=25,
)


class World:
    """An application with a chain of operators, and its driver.

    Args:
        chain: the names of the operators.
        policy: what happens to records that fail.
        settings: settings of the application.
    """

    def __init__(self, chain: Sequence[str], policy: str, **settings: Any) -> None:
        app = application(**POLICIES[policy], **settings)
        config = TopicConfig(2, 1)
        left, right, aside = (app.topic(name, **TEXT, config=config) for name in ("left", "right", "aside"))
        frame, other = app.dataframe(left), app.dataframe(right)
        for each in (frame, other):
            each.register_store(MemoryStore)
        self.sink, self.errors, self.topics = ListSink(), list[str](), ["out", "aside"]
        if policy == "keep":
            self.topics.append("letters")
        for number, name in enumerate(chain):
            frame = KNOWN[name](frame, Surroundings(f"s{number}", other, aside, self.sink))
        # The records of all tasks in one partition.
        frame.to_topic(app.topic("out", **TEXT, config=config), key=lambda value: "all")
        other.to_topic(aside)
        self.driver = TopologyTestDriver(app)

    def pipe(self, records: Sequence[InputRecord], pipe: Callable[[Sequence[InputRecord]], None]) -> None:
        """Pipe records, and go on behind each that fails."""
        left = list(records)
        while left:
            before = self.count()
            try:
                pipe(left)
                return
            except StreamRTError as error:
                self.errors.append(repr(error))
            left = left[self.count() - before :]

    def end(self) -> None:
        """End the inputs; records of the last windows may fail."""
        try:
            self.driver.end()
        except StreamRTError as error:
            self.errors.append(repr(error))

    def count(self) -> int:
        """Return how many records were piped."""
        ends = self.driver._execution.offsets.ends
        return sum(end for partition, end in ends.items() if partition.topic in ("left", "right"))

    def pipe_each(self, records: Sequence[InputRecord]) -> None:
        for topic, value, key, timestamp, headers, partition in records:
            self.driver.pipe(topic, value, key=key, timestamp=timestamp, headers=headers, partition=partition)

    def seen(self) -> dict[str, Any]:
        """Return everything that can be seen since the last call."""
        execution = self.driver._execution
        stores = {}
        for (scope, name), store in execution.stores._readable.items():
            for partition in range(2):
                with store.reading(partition) as opened:
                    # Resident tasks also open stores that get nothing.
                    stores[scope, name, partition] = dict(opened.scan(b"", None)) or None
        return {
            "errors": self.errors,
            "topics": {name: self.driver.read(name) for name in self.topics},
            "outputs": self.driver.outputs(),
            "sunk": sorted(map(repr, self.sink)),
            "offsets": {each: at for each, at in execution.offsets.positions.items() if at},
            "watermarks": execution._event_time.watermarks(),
            "stores": {place: entries for place, entries in stores.items() if entries},
            "status": self.driver.status,
        }


@pytest.mark.slow
@settings(max_examples=1_000 if LONG else 60)
@given(
    chain=chains,
    records=inputs,
    policy=st.sampled_from(sorted(POLICIES)),
    guarantee=st.sampled_from(("at-least-once", "exactly-once")),
    mode=st.sampled_from(PROCESSING_MODES),
    chunk=st.sampled_from((1, 2, 5, 100)),
)
def test_chunks_have_the_results_of_records_that_are_piped_one_by_one(
    chain: list[str], records: list[InputRecord], policy: str, guarantee: str, mode: str, chunk: int
) -> None:
    own = {"processing_guarantee": guarantee, "processing_mode": mode}
    try:
        one, many = (World(chain, policy, **own) for _ in range(2))
    except StreamRTError:
        # Some operators do not fit together.
        reject()
    for part in (records[::2], records[1::2]):
        one.pipe(part, one.pipe_each)
        many.pipe(part, lambda left: many.driver.pipe_many(left, chunk=chunk))
        assert many.seen() == one.seen()
    # A record that is piped by itself follows as usual.
    for world in (one, many):
        world.pipe(records[:1], world.pipe_each)
        world.end()
    assert many.seen() == one.seen()


# -- Commits -----------------------------------------------------------------------------------------------------------


def add_up(value: int, state: State) -> int:
    total: int = state.get("total", 0) + value
    state.set("total", total)
    return total


def numbers(*values: Any) -> list[InputRecord]:
    return [InputRecord("in", value, key="k") for value in values]


@both_guarantees
@in_both_modes
def test_each_chunk_is_one_commit(guarantee: str) -> None:
    stage = Stage(TEXT, processing_guarantee=guarantee)
    stage.sdf.apply(add_up, stateful=True).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe_many((each for each in numbers(*range(10))), chunk=4)
    changes = [
        record
        for record in driver._execution.clients.written("changelog__group--in--default")
        if b"total" in (record.key or b"")
    ]
    assert [record.value for record in changes] == [b"\x006", b"\x0028", b"\x0045"]
    assert [record.value for record in driver.read("out")] == [0, 1, 3, 6, 10, 15, 21, 28, 36, 45]
    driver.pipe("in", 5, key="k")
    assert driver.state("in", "k").get("total") == 50
    assert driver.checkpoint().offsets["in", 0] == 11


def test_a_chunk_has_at_least_one_record_and_topics_that_are_read() -> None:
    stage = Stage(TEXT)
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    with pytest.raises(ArgumentValueError, match="chunk=0"):
        driver.pipe_many(numbers(1), chunk=0)
    with pytest.raises(ArgumentValueError, match="no dataframe reads topic 'out'"):
        driver.pipe_many([*numbers(1), InputRecord("out", 2)])
    driver.pipe_many([])
    assert [record.value for record in driver.read("out")] == [1]


# -- Failures ----------------------------------------------------------------------------------------------------------


@both_guarantees
@in_both_modes
def test_the_records_before_one_that_fails_are_processed_and_those_behind_it_are_not(guarantee: str) -> None:
    stage, called = Stage(TEXT, processing_guarantee=guarantee), list[int]()

    def divide(total: int) -> float:
        called.append(total)
        return 6 / (total - 3)

    stage.sdf.apply(add_up, stateful=True).apply(divide).to_topic(stage.out)
    driver = stage.drive()
    with pytest.raises(ProcessingError, match=r"in\[0\] at offset 1 .*ZeroDivisionError"):
        driver.pipe_many(numbers(1, 2, 3))
    assert driver.status is ApplicationStatus.FAILED
    assert driver.state("in", "k").get("total") == 1
    assert [record.value for record in driver.read("out")] == [-3.0]
    # Once for the chunk, which is taken back, and once more one by one.
    assert called == [1, 3, 1, 3]
    driver.pipe_many(numbers(4, 1))
    assert [record.value for record in driver.read("out")] == [3.0, 2.0]


@both_guarantees
def test_records_before_an_error_of_the_iterable_are_processed(guarantee: str) -> None:
    stage = Stage(TEXT, processing_guarantee=guarantee)
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()

    def broken() -> Iterator[InputRecord]:
        yield from numbers(1, 2)
        raise OSError("the file ends here")

    with pytest.raises(OSError, match="ends here"):
        driver.pipe_many(broken())
    with pytest.raises(SerializationError):
        driver.pipe_many(numbers(3, object()))
    assert [record.value for record in driver.read("out")] == [1, 2, 3]


@both_guarantees
@in_both_modes
def test_an_output_that_is_too_large_fails_with_its_record(guarantee: str) -> None:
    def texts(pipe: Callable[[TopologyTestDriver], None]) -> tuple[str, list[Any]]:
        stage = Stage(TEXT, {"config": TopicConfig(1, 1, {"max.message.bytes": "500"})}, processing_guarantee=guarantee)
        stage.sdf.apply(lambda size: "x" * size).to_topic(stage.out)
        driver = stage.drive()
        with pytest.raises(StreamRTError) as caught:
            pipe(driver)
        return repr(caught.value), [record.value for record in driver.read("out")]

    def pipe_each(driver: TopologyTestDriver) -> None:
        for each in numbers(1, 900, 2):
            driver.pipe("in", each.value, key="k")

    assert texts(lambda driver: driver.pipe_many(numbers(1, 900, 2))) == texts(pipe_each)


class Moody(BatchingSink):
    """Refuses batches with a number until it has done so often enough."""

    def __init__(self, refused: int, times: int) -> None:
        super().__init__()
        self.refused, self.times = refused, times
        self.batches: list[list[Any]] = []

    def write(self, batch: SinkBatch) -> None:
        values = [item.value for item in batch]
        if self.refused in values and self.times:
            self.times -= 1
            raise SinkBackpressureError(1.0)
        self.batches.append(values)


@in_both_modes
def test_a_record_at_which_a_sink_pauses_is_not_accepted() -> None:
    stage, sink = Stage(TEXT), Moody(2, 2)
    stage.sdf.sink(sink)
    driver = stage.drive()
    with pytest.raises(SinkBackpressureError):
        driver.pipe_many(numbers(0, 1, 2, 3))
    assert sink.batches == [[0], [1]]
    driver.pipe_many(numbers(2, 3))
    assert sink.batches == [[0], [1], [2, 3]]


class Whole(BaseSink):
    """Does not separate partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Any] = []
        self.written: list[list[Any]] = []

    def add(self, value: Any, key: Any, timestamp: int, headers: Any, topic: str, partition: int, offset: int) -> None:
        self.held.append(value)

    def flush(self) -> None:
        if self.held:
            self.written.append(self.held)
        self.held = []

    def on_paused(self) -> None:
        self.held = []


@in_both_modes
def test_a_sink_that_does_not_separate_partitions_gets_those_of_one_task_at_a_time() -> None:
    stage, sink = Stage({**TEXT, "config": TopicConfig(2, 1)}), Whole()
    stage.sdf.sink(sink)
    driver = stage.drive()
    driver.pipe_many(InputRecord("in", number, partition=number // 2 % 2) for number in range(7))
    assert sink.written == [[0, 1], [2, 3], [4, 5], [6]]


# -- Life --------------------------------------------------------------------------------------------------------------


def test_records_wait_during_a_pause_and_are_refused_after_a_stop() -> None:
    stage = Stage(TEXT)
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    driver.pause()
    driver.pipe_many(numbers(1, 2, 3))
    assert driver.read("out") == []
    driver.resume()
    driver.pipe_many(numbers(4, 5))
    assert [record.value for record in driver.read("out")] == [1, 2, 3, 4, 5]
    driver.stop()
    with pytest.raises(ApplicationStateError):
        driver.pipe_many(numbers(6, 7))
    assert driver.read("out") == []
