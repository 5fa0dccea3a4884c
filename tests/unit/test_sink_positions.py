"""The positions of transactional sinks: when values are dropped, and what a commit stores."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.connectors import ListSink, SinkBatch, SinkPosition
from streamrt.dataframe import StreamingDataFrame
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError, SinkFencedError
from streamrt.kafka import TopicConfig
from streamrt.models import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.tasks.chain.sink_positions import SinkPositions, causes_of_time
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.testing import TopologyTestDriver
from streamrt.testing.cluster import MemoryCluster
from streamrt.testing.memory import MemoryClients
from streamrt.topology import TaskId
from tests.sim.app import SimDatabase, TransactionalSimSink
from tests.unit.tasks import chunk

PLACE = TopicPartition("in", 0)


def sink_with(database: SimDatabase, step: Callable[[str], None] = lambda where: None) -> TransactionalSimSink:
    sink = TransactionalSimSink()
    sink.database, sink.step = database, step
    return sink


def batch(*offsets: int) -> list[SinkBatch]:
    made = SinkBatch(*PLACE)
    for offset in offsets:
        made.append(offset, None, 0, None, offset)
    return [made] if offsets else []


def stored(database: SimDatabase) -> list[SinkPosition]:
    return list(database.positions.values())


def test_a_task_that_begins_behind_a_position_drops_values_up_to_it() -> None:
    database = SimDatabase()
    first = SinkPositions(sink_with(database), "g", {"in": "id"})
    first.read({PLACE: 0})
    first.write(batch(0, 1), {PLACE: 2})
    assert stored(database) == [SinkPosition(2, 1, "id")]
    second = SinkPositions(sink_with(database), "g", {"in": "id"})
    second.read({PLACE: 0})
    assert second.below == {PLACE: 2}
    # A commit in the middle leaves both.
    second.write([], {PLACE: 1})
    assert second.below == {PLACE: 2}
    second.write(batch(2), {PLACE: 3})
    assert second.below == {}
    assert stored(database) == [SinkPosition(3, 2, "id")]
    with pytest.raises(SinkFencedError):
        first.write(batch(2), {PLACE: 3})


def test_a_commit_without_values_stores_nothing() -> None:
    database = SimDatabase()
    positions = SinkPositions(sink_with(database), "g", {})
    positions.read({PLACE: 0})
    positions.write([], {PLACE: 9})
    assert stored(database) == []


def test_a_position_in_a_topic_that_was_created_again_does_not_count() -> None:
    database = SimDatabase()
    before = SinkPositions(sink_with(database), "g", {"in": "old"})
    before.read({PLACE: 0})
    before.write(batch(0), {PLACE: 100})
    after = SinkPositions(sink_with(database), "g", {"in": "new"})
    after.read({PLACE: 0})
    assert after.below == {}
    after.write(batch(0), {PLACE: 1})
    assert stored(database) == [SinkPosition(1, 2, "new")]


def test_values_that_are_not_written_again_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    database = SimDatabase()
    first = SinkPositions(sink_with(database), "g", {})
    first.read({PLACE: 0})
    first.write(batch(0), {PLACE: 7})
    again = SinkPositions(sink_with(database), "g", {})
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            again.forget([PLACE])
            again.read({PLACE: 4})
    (message,) = caplog.messages
    assert message == (
        "the sink database has the values of in[0] up to offset 7, and the group continues at 4: the values in between are "
        "not written again"
    )


def watermark(sdf: StreamingDataFrame) -> StreamingDataFrame:
    return sdf.tumbling_window(10).count().final(closing_strategy="watermark")


def by_partition(sdf: StreamingDataFrame) -> StreamingDataFrame:
    return sdf.tumbling_window(10).count().final(closing_strategy="partition")


def by_key(sdf: StreamingDataFrame) -> StreamingDataFrame:
    return sdf.tumbling_window(10).count().final()


@pytest.mark.parametrize(("windows", "timed"), [(watermark, True), (by_partition, False), (by_key, False)])
def test_sinks_below_what_time_causes_drop_nothing(
    windows: Callable[[StreamingDataFrame], StreamingDataFrame], timed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    database = SimDatabase()
    app = Application("unused:9092", consumer_group="g", processing_guarantee="exactly-once", loglevel=None)
    sink = sink_with(database)
    windows(app.dataframe(app.topic("in"))).apply(lambda value: value).sink(sink)
    assert bool(causes_of_time(definition_of(app).task_spec().topology)) == timed
    sink.step = None
    with caplog.at_level(logging.WARNING), pytest.raises(SinkError):
        # The double has no database in a task.
        TopologyTestDriver(app).pipe("in", {"n": 1}, key=b"k", timestamp=1)
    warned = "gets results that time causes (window-1" in caplog.text
    assert warned == timed
    read = SinkPositions(sink_with(database), "g", {}, repeatable=not timed)
    read.read({PLACE: 0})
    read.write(batch(0), {PLACE: 5})
    read.forget([PLACE])
    read.read({PLACE: 0})
    assert read.below == ({} if timed else {PLACE: 5})


def test_a_commit_of_unfinished_work_stores_the_position_of_its_beginning(tmp_path: Path) -> None:
    database = SimDatabase()
    app = Application("unused:9092", consumer_group="g", processing_guarantee="exactly-once")
    by_partition(app.dataframe(app.topic("in"))).sink(sink_with(database))
    definition = definition_of(app)
    spec = definition.rehearse_start(
        definition.task_spec(count_outputs=True), MemoryCluster(**{"in": TopicConfig(1, 1)}), tmp_path
    )
    seconds = [0.0]

    def clock() -> float:
        seconds[0] += 0.001
        return seconds[0]

    tasks = TaskExecutor(spec, MemoryClients(lambda: 0), clock=clock)
    keys: list[Any] = [b"key-%d" % number for number in range(20)]
    records = chunk(*[b"{}"] * 21, keys=[*keys, b"last"], timestamps=[1] * 20 + [100])
    # The last record closes twenty windows, of which the time slice allows some.
    report = tasks.run([records], BatchContext(time_limit_s=0.03))
    seen = []
    while True:
        assert report.failure is None
        left_over = [task for task, left in report.unfinished.items() if left]
        seen.append((len(database.rows), [position.offset for position in stored(database)], bool(left_over)))
        if not left_over:
            break
        report = tasks.tick(left_over, BatchContext({PLACE: 21}, time_limit_s=0.004))
    assert seen[-1] == (20, [21], False)
    # Of the first commit, which may be repeated with the record, nothing counts as written.
    rows, offsets, unfinished = seen[0]
    assert (0 < rows < 20, offsets, unfinished) == (True, [0], True)


def test_records_of_two_inputs_whose_values_are_there_come_before_any_other(tmp_path: Path) -> None:
    database = SimDatabase()
    app = Application("unused:9092", consumer_group="g", processing_guarantee="exactly-once")
    left, right = app.dataframe(app.topic("left")), app.dataframe(app.topic("right"))
    left.join_interval(right, "left", backward_ms=100, forward_ms=100).sink(sink_with(database))
    definition = definition_of(app)
    topics = MemoryCluster(left=TopicConfig(1, 1), right=TopicConfig(1, 1))
    lefts = chunk(b'{"l":0}', b'{"l":1}', topic="left", keys=[b"k"] * 2, timestamps=[10, 30])
    late = chunk(b'{"r":0}', topic="right", keys=[b"k"], timestamps=[20])
    # The sink has the values, and Kafka loses the transaction: what came late comes between them now.
    for number, records in enumerate([[lefts], [lefts, late]]):
        spec = definition.rehearse_start(definition.task_spec(), topics, tmp_path / str(number))
        tasks = TaskExecutor(spec, MemoryClients(lambda: 0))
        report = tasks.run(records, BatchContext(dict.fromkeys(spec.topology.inputs(TaskId("left--right", 0)), 0)))
        assert report.failure is None
    values = [value for _, _, value in database.rows]
    assert values == [{"l": 0}, {"l": 1}, {"l": 0, "r": 0}, {"l": 1, "r": 0}]


def test_a_sink_that_cannot_tell_its_positions_pauses_or_ends_its_task() -> None:
    database = SimDatabase()

    def refuse(error: Exception) -> Callable[[str], None]:
        def step(where: str) -> None:
            if where == "sink positions":
                raise error

        return step

    for error, expected in ((SinkBackpressureError(3), "stalled"), (OSError("gone"), "failure")):
        app = Application("unused:9092", consumer_group="g")
        app.dataframe(app.topic("in")).sink(sink_with(database, refuse(error)))
        tasks = TaskExecutor(definition_of(app).task_spec(), MemoryClients(lambda: 0))
        report = tasks.run([chunk(b"1")], BatchContext())
        if expected == "stalled":
            assert [pause.seconds for pause in report.stalled.values()] == [3]
        else:
            assert report.failure is not None
            assert report.failure.message == ("the sink database failed to read its positions of in[0]: OSError: gone")
        assert database.rows == []


def test_a_sink_that_is_away_concerns_only_tasks_that_write_to_it() -> None:
    def refuse(where: str) -> None:
        raise SinkBackpressureError(3)

    app = Application("unused:9092", consumer_group="g")
    app.dataframe(app.topic("in")).sink(sink_with(SimDatabase(), refuse))
    app.dataframe(app.topic("free")).to_topic(app.topic("out"))
    tasks = TaskExecutor(definition_of(app).task_spec(), MemoryClients(lambda: 0))
    assert list(tasks.run([chunk(b"1")], BatchContext()).stalled) == [TaskId("in", 0)]
    report = tasks.run([chunk(b"1", topic="free")], BatchContext())
    assert report.stalled == {}
    assert report.ranges[TopicPartition("free", 0)].end == 1


def test_two_sinks_of_one_name_are_refused() -> None:
    app = Application("unused:9092", consumer_group="g")
    sdf = app.dataframe(app.topic("in"))
    sdf.sink(TransactionalSimSink())
    sdf.sink(ListSink())
    sdf.sink(TransactionalSimSink())
    with pytest.raises(
        ConfigurationError, match="two sinks of the class TransactionalSimSink have the name 'database'"
    ):
        TopologyTestDriver(app)
