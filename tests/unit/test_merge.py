"""The order in which a task with several inputs processes their records."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt.app import definition_of
from streamrt.errors import TransactionError
from streamrt.kafka import KafkaRequestError
from streamrt.models import Headers, OffsetRange, TimestampType, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.report import Report
from streamrt.runtime.tasks.merge import Merge
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.serializers import Deserializer, SerializationContext
from streamrt.state import State
from streamrt.testing.memory import MemoryClients
from streamrt.topology import TaskId
from tests.unit.apps import application
from tests.unit.tasks import Process, chunk

TOPICS = ("a", "b", "c")


class Logs(MemoryClients):
    """Input topics that can be read ahead.

    Args:
        records: timestamps by topic; the offset is the place in the list.
        size: records of a chunk.
    """

    def __init__(self, records: dict[str, list[int]], size: int = 2) -> None:
        super().__init__(lambda: 0)
        self.records = records
        self.size = size
        self.asked: list[str] = []
        self.read_ahead: list[tuple[str, int]] = []
        self.trouble: Exception | None = None

    def log_end(self, place: TopicPartition) -> int:
        self.asked.append(place.topic)
        return len(self.records[place.topic])

    def read(self, place: TopicPartition, start: int, end: int) -> Iterator[Chunk]:
        if self.trouble is not None:
            raise self.trouble
        for first in range(start, end, self.size):
            offsets = range(first, min(first + self.size, end))
            self.read_ahead += [(place.topic, offset) for offset in offsets]
            yield self.chunk(place.topic, offsets)

    def chunk(self, topic: str, offsets: range) -> Chunk:
        times = [self.records[topic][offset] for offset in offsets]
        values = [str(offset).encode() for offset in offsets]
        return chunk(*values, topic=topic, offsets=list(offsets), timestamps=times)


@dataclass
class Case:
    """Logs, what of them is delivered, and how it is cut."""

    logs: Logs
    start: dict[TopicPartition, int]
    delivered: dict[TopicPartition, list[Chunk]]
    ends: dict[str, int] = field(default_factory=dict)

    def merged(self) -> list[tuple[int, str, int]]:
        """Return timestamp, topic and offset of the records in the order of the merge."""
        merge = Merge(self.delivered, self.start, lambda found: found.timestamps, self.logs)
        found = []
        for each, start, stop in merge.runs():
            found += [(each.timestamps[index], each.topic, each.offsets[index]) for index in range(start, stop)]
        merge.close()
        return found


@st.composite
def cases(draw: st.DrawFn, ordered: bool) -> Case:
    topics = TOPICS[: draw(st.integers(2, 3))]
    times = st.lists(st.integers(0, 20), max_size=12)
    records = {topic: sorted(draw(times)) if ordered else draw(times) for topic in topics}
    case = Case(Logs(records, draw(st.integers(1, 4))), {}, {})
    for topic in topics:
        place, count = TopicPartition(topic, 0), len(records[topic])
        start = draw(st.integers(0, count))
        case.start[place], case.ends[topic] = start, draw(st.integers(start, count))
        # Chunks may begin below the position, and come in any order.
        cuts = sorted(draw(st.sets(st.integers(0, case.ends[topic]), max_size=4)) | {0, case.ends[topic]})
        ranges = [range(first, last) for first, last in itertools.pairwise(cuts) if last > start]
        case.delivered[place] = [case.logs.chunk(topic, part) for part in draw(st.permutations(ranges))]
    return case


@pytest.mark.slow
@given(cases(ordered=True))
def test_the_result_is_a_global_sort_by_time_and_topic_however_records_are_delivered(case: Case) -> None:
    found = case.merged()
    left = {place.topic: start for place, start in case.start.items()}
    everything = sorted(
        (time, topic, offset)
        for topic, times in case.logs.records.items()
        for offset, time in enumerate(times)
        if offset >= left[topic]
    )
    assert found == everything[: len(found)]
    # It goes on until all that was delivered is in it, and no further.
    wanted = {(topic, offset) for topic, end in case.ends.items() for offset in range(left[topic], end)}
    places = [(topic, offset) for _, topic, offset in found]
    assert wanted <= set(places)
    assert not places or places[-1] in wanted


@pytest.mark.slow
@given(cases(ordered=False))
def test_the_order_of_an_input_is_that_of_its_offsets(case: Case) -> None:
    found = case.merged()
    at = {place.topic: start for place, start in case.start.items()}
    for time, topic, offset in found:
        assert offset == at[topic]
        # Next is always the input whose own next record is the oldest.
        heads = [(times[at[other]], other) for other, times in case.logs.records.items() if at[other] < len(times)]
        assert (time, topic) == min(heads)
        at[topic] += 1
    assert all(at[topic] >= end for topic, end in case.ends.items())


def test_rows_of_a_chunk_that_are_out_of_order_are_sorted() -> None:
    logs = Logs({"a": [1, 2, 3, 4], "b": []})
    place = TopicPartition("a", 0)
    mixed = logs.chunk("a", range(4)).select([2, 0, 3, 1])
    case = Case(logs, {place: 1, TopicPartition("b", 0): 0}, {place: [mixed]})
    assert [offset for _, _, offset in case.merged()] == [1, 2, 3]


def test_no_row_is_lost_or_doubled_whatever_way_the_rows_of_an_input_are_dealt_out() -> None:
    logs = Logs({"a": list(range(6)), "b": []})
    place = TopicPartition("a", 0)
    whole = replace(logs.chunk("a", range(6)), headers=[[("h", b"1")]] * 6)
    plain = replace(whole, headers=None)
    dealt = [whole.select([1, 3]), plain.select([4, 0, 2]), plain.select([3, 5])]
    case = Case(logs, {place: 0, TopicPartition("b", 0): 0}, {place: dealt})
    assert [offset for _, _, offset in case.merged()] == [0, 1, 2, 3, 4, 5]


def test_long_runs_of_one_input_are_one_run() -> None:
    logs = Logs({"a": list(range(100)), "b": [1_000]})
    places = {TopicPartition("a", 0): range(100), TopicPartition("b", 0): range(1)}
    delivered = {place: [logs.chunk(place.topic, offsets)] for place, offsets in places.items()}
    merge = Merge(delivered, dict.fromkeys(places, 0), lambda found: found.timestamps, logs)
    assert [(each.topic, start, stop) for each, start, stop in merge.runs()] == [("a", 0, 100), ("b", 0, 1)]
    # Its end was asked for when it ran out of records, once.
    assert logs.asked == ["a"]


def test_nothing_is_read_ahead_where_nobody_waits_for_it() -> None:
    logs = Logs({"a": [1, 2, 3, 9], "b": [5, 6, 7, 8]})
    place, other = TopicPartition("a", 0), TopicPartition("b", 0)
    case = Case(logs, {place: 0, other: 0}, {place: [logs.chunk("a", range(3))]})
    # Where "b" stands must be known, and is not delivered.
    assert case.merged() == [(1, "a", 0), (2, "a", 1), (3, "a", 2)]
    assert logs.asked == ["b"]
    assert logs.read_ahead == [("b", 0), ("b", 1)]


# -- Tasks -----------------------------------------------------------------------------------------------------------

A, B, TASK = TopicPartition("a", 0), TopicPartition("b", 0), TaskId("a--b", 0)


class Milliseconds(Deserializer):
    """Reads numbers, and refuses what is none."""

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        return int(value)


def tasks(
    logs: Logs, *, transactional: bool = False, stateful: bool = False, extractor: Any = None, **more: Any
) -> Process:
    guarantee: Any = "exactly-once" if transactional else "at-least-once"
    app = application(processing_guarantee=guarantee, **more)
    frames = [
        app.dataframe(app.topic(name, value_deserializer=Milliseconds(), timestamp_extractor=extractor))
        for name in "ab"
    ]
    merged = frames[0].concat(frames[1])
    if stateful:
        merged.apply(count, stateful=True)
    spec = replace(definition_of(app).task_spec(count_outputs=True, collect=True), processed_offsets=True)
    return Process(TaskExecutor(spec, logs), app.config.processing_mode)


def count(value: Any, state: State) -> int:
    n: int = state.get("n", 0) + 1
    state.set("n", n)
    return n


def outputs(report: Report) -> list[tuple[str, int]]:
    return [(output.topic, output.offset) for output in report.collected]


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize("transactional", [True, False])
def test_a_session_covers_all_inputs(transactional: bool) -> None:
    logs = Logs({"a": [1, 3, 5], "b": [2, 4, 6, 8]})
    report = tasks(logs, transactional=transactional).run(
        [logs.chunk("b", range(2)), logs.chunk("a", range(3))], BatchContext()
    )
    # The last record of "a" was delivered, so the one of "b" before it was needed, and what comes after it was not.
    assert outputs(report) == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]
    assert report.ranges == {A: OffsetRange("a", 0, 0, 3), B: OffsetRange("b", 0, 0, 2)}
    assert (report.complete, report.records, report.outputs) == (True, 5, 5)
    assert report.workers == {TASK: logs.worker}
    assert report.processed == {A: [0, 1, 2], B: [0, 1]}
    assert logs.offsets == ({A: 3, B: 2} if transactional else {})


@pytest.mark.usefixtures("processing_mode")
def test_what_was_read_ahead_is_dropped_when_it_is_delivered() -> None:
    logs = Logs({"a": [5, 15], "b": [1, 2, 3, 4, 10, 20]})
    work = tasks(logs)
    first = work.run([logs.chunk("a", range(2)), logs.chunk("b", range(1))], BatchContext())
    assert outputs(first) == [("b", 0), ("b", 1), ("b", 2), ("b", 3), ("a", 0), ("b", 4), ("a", 1)]
    positions = {place: done.end for place, done in first.ranges.items()}
    assert positions == {A: 2, B: 5}
    second = work.run([logs.chunk("b", range(1, 6))], BatchContext(positions))
    assert outputs(second) == [("b", 5)]
    assert work.run([logs.chunk("b", range(1, 5))], BatchContext(positions)).ranges == {}


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize("limit", range(1, 8))
def test_limits_are_exact(limit: int) -> None:
    logs = Logs({"a": [1, 3, 5, 7], "b": [2, 4, 6]})
    work = tasks(logs)
    delivered = [logs.chunk("a", range(4)), logs.chunk("b", range(3))]
    report = work.run(delivered, BatchContext(output_limit=limit))
    order = [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3)]
    assert outputs(report) == order[:limit]
    assert report.complete == (limit == 7)
    positions = {place: done.end for place, done in report.ranges.items()}
    assert outputs(work.run(delivered, BatchContext(positions))) == order[limit:]


@pytest.mark.usefixtures("processing_mode")
def test_when_time_is_up_a_record_was_processed_and_the_rest_comes_again() -> None:
    logs = Logs({"a": [1, 3], "b": [2, 4]})
    work, delivered = tasks(logs), [logs.chunk("a", range(2)), logs.chunk("b", range(2))]
    positions = {A: 0, B: 0}
    found = []
    for _ in range(4):
        report = work.run(delivered, BatchContext(positions, time_limit_s=0))
        found += outputs(report)
        positions.update({place: done.end for place, done in report.ranges.items()})
    assert found == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


@pytest.mark.usefixtures("processing_mode")
def test_committed_offsets_that_are_ahead_drop_records_and_those_behind_end_the_application() -> None:
    logs = Logs({"a": [1, 3], "b": [2, 4]})
    work, delivered = tasks(logs, transactional=True), [logs.chunk("a", range(2)), logs.chunk("b", range(2))]
    logs.offsets = {A: 1, B: 1}
    assert outputs(work.run(delivered, BatchContext())) == [("a", 1), ("b", 1)]
    work.let_go()
    logs.offsets = {A: 2, B: 0}
    report = work.run(delivered, BatchContext({A: 1, B: 1}))
    assert report.failure is not None
    assert "the committed offset of b[0] is 0, but it was 1 before" in report.failure.message


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize("transactional", [True, False])
def test_a_failure_names_the_input(transactional: bool) -> None:
    logs = Logs({"a": [1, 3], "b": [2, 4]})
    broken = chunk(b"1", b"x", topic="b", timestamps=[2, 4])
    report = tasks(logs, transactional=transactional).run([logs.chunk("a", range(2)), broken], BatchContext())
    assert report.failure is not None
    assert (report.failure.partition, report.failure.offset) == (B, 1)
    done = [("a", 0), ("b", 0), ("a", 1)]
    assert outputs(report) == ([] if transactional else done)
    ends = {place: done.end for place, done in report.ranges.items()}
    assert ends == ({A: 0, B: 0} if transactional else {A: 2, B: 1})


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize(
    "trouble", [KafkaRequestError("no answer", retriable=True), TransactionError("fenced", fenced=True)]
)
def test_a_log_that_cannot_be_read_interrupts_the_task(trouble: Exception) -> None:
    logs = Logs({"a": [5], "b": [1, 2]})
    logs.trouble = trouble
    report = tasks(logs).run([logs.chunk("a", range(1))], BatchContext())
    assert report.interrupted == {TASK: str(trouble)}
    assert (report.records, outputs(report)) == (0, [])
    assert {place: done.end for place, done in report.ranges.items()} == {A: 0, B: 0}


@pytest.mark.usefixtures("processing_mode")
def test_the_time_of_the_merge_is_that_of_the_extractor() -> None:
    def at(value: Any, headers: Headers | None, timestamp: float, kind: TimestampType) -> int:
        return 100 - int(value)

    # The values are the offsets, so by the extractor the records run backwards in each topic.
    logs = Logs({"a": [1, 1], "b": [1, 1, 1]})
    report = tasks(logs, extractor=at).run([logs.chunk("a", range(2)), logs.chunk("b", range(3))], BatchContext())
    assert outputs(report) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    assert [output.timestamp for output in report.collected] == [100, 99, 100, 99, 98]


@pytest.mark.usefixtures("processing_mode")
def test_tasks_of_several_partitions_and_of_plain_topics_share_a_batch() -> None:
    logs = Logs({"a": [1, 3], "b": [2], "plain": [1, 1]})
    app = application()
    frames = [app.dataframe(app.topic(name, value_deserializer=Milliseconds())) for name in ("a", "b", "plain")]
    frames[0].concat(frames[1])
    work = Process(
        TaskExecutor(definition_of(app).task_spec(count_outputs=True, collect=True), logs), app.config.processing_mode
    )
    second = Chunk("b", 1, [7], [None], [b"7"], [0], [0])
    delivered = [logs.chunk("b", range(1)), second, logs.chunk("plain", range(2)), logs.chunk("a", range(2))]
    logs.log_end = lambda place: 0  # type: ignore[method-assign]
    report = work.run(delivered, BatchContext())
    plain, merged = [("plain", 0), ("plain", 1)], [("a", 0), ("b", 0), ("a", 1)]
    # Resident tasks take turns as they are polled; in a micro-batch, all that was delivered to a merged task comes first.
    resident = app.config.processing_mode == "resident"
    assert outputs(report) == ([*merged, ("b", 7), *plain] if resident else [*plain, *merged, ("b", 7)])
    assert sorted(report.ranges) == [A, TopicPartition("a", 1), B, TopicPartition("b", 1), TopicPartition("plain", 0)]
    work.let_go()
    limited = work.run(delivered, BatchContext(output_limit=2))
    assert outputs(limited) == (merged[:2] if resident else plain)
    assert not limited.complete


def test_a19_inputs_that_may_be_early_come_before_all_older_records_behind_them() -> None:
    # The right sides of as-of joins behind an exchange: two input partitions with a backlog, one after the other.
    logs = Logs({"a": [10, 30, 50, 20, 40], "b": [15, 25, 45, 70]}, size=1)
    places = [TopicPartition(topic, 0) for topic in "ab"]
    delivered = {places[0]: [logs.chunk("a", range(2))], places[1]: [logs.chunk("b", range(4))]}
    merge = Merge(delivered, dict.fromkeys(places, 0), lambda found: found.timestamps, logs, early=places[:1])
    found = [each.timestamps[index] for each, start, stop in merge.runs() for index in range(start, stop)]
    merge.close()
    assert found == [10, 15, 30, 50, 20, 25, 40, 45, 70]
    # Records that were delivered are not read again.
    assert logs.read_ahead == [("a", 2), ("a", 3), ("a", 4)]


@pytest.mark.slow
@given(cases(ordered=False), st.sampled_from(TOPICS))
def test_an_input_that_may_be_early_is_never_late_and_keeps_its_order(case: Case, early: str) -> None:
    partition = TopicPartition(early, 0)
    merge = Merge(case.delivered, case.start, lambda found: found.timestamps, case.logs, early=[partition])
    found = []
    for each, start, stop in merge.runs():
        found += [(each.topic, each.offsets[index], each.timestamps[index]) for index in range(start, stop)]
    merge.close()
    at = {place.topic: start for place, start in case.start.items()}
    times = case.logs.records.get(early, [])
    for topic, offset, time in found:
        assert offset == at[topic]
        at[topic] += 1
        assert topic == early or all(other >= time for other in times[at.get(early, 0) :])
    assert all(at[topic] >= end for topic, end in case.ends.items())


def test_ends_that_are_given_bound_what_is_read_ahead() -> None:
    logs = Logs({"a": [10, 20, 30, 40], "b": [50]})
    places = [TopicPartition(topic, 0) for topic in "ab"]
    delivered = {places[1]: [logs.chunk("b", range(1))]}
    merge = Merge(
        delivered, dict.fromkeys(places, 0), lambda found: found.timestamps, logs, ends={places[0]: 3, places[1]: 1}
    )
    found = [each.timestamps[index] for each, start, stop in merge.runs() for index in range(start, stop)]
    merge.close()
    assert found == [10, 20, 30, 50]
    # Where the end is reached, the log is not asked for its own.
    assert logs.asked == ["a"]
