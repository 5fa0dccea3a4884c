"""Tasks: what they do with records, with errors and with limits, and how far they say that they came."""

from collections.abc import Iterator
from typing import Any

import pytest

from streamrt import MessageContext, message_context, set_message_context
from streamrt.app import definition_of
from streamrt.errors import (
    IgnoreMessage,
    InvalidOperationError,
)
from streamrt.models import Headers, OffsetRange, TimestampType, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.serializers import Deserializer, SerializationContext
from tests.unit.apps import Stage, application
from tests.unit.tasks import PLACE, Process, Writer, chunk, end, extract, numbers, run, values

pytestmark = pytest.mark.usefixtures("processing_mode")

# -- The happy path --------------------------------------------------------------------------------------------------


def test_a_report_sums_up_the_work() -> None:
    stage = Stage()
    stage.sdf.apply(lambda value: [value, value], expand=True).to_topic(stage.out)
    writer = Writer()
    report = run(stage.app, numbers(3, start=5), writer=writer)
    assert report.ranges == {PLACE: OffsetRange("in", 0, 5, 8)}
    assert (report.complete, report.failure) == (True, None)
    assert (report.records, report.produced, report.outputs) == (3, 6, 6)
    assert writer.values == [b"5", b"5", b"6", b"6", b"7", b"7"]
    assert writer.flushes == 1
    output = report.collected[-1]
    assert (output.value, output.topic, output.partition, output.offset) == (7, "in", 0, 7)


def test_a_report_has_sizes_and_the_time_of_commits() -> None:
    stage = Stage()
    stage.sdf.filter(lambda value: value != 6).to_topic(stage.out)
    report = run(stage.app, numbers(3, start=5, keys=[b"ab", None, b"c"]))
    assert (report.read_bytes, report.produced_bytes) == (3 + 3, 2 + 3)
    assert 0 < report.commit_seconds < 60
    assert run(stage.app).commit_seconds == 0


def test_aborted_work_has_no_size() -> None:
    stage = Stage(processing_guarantee="exactly-once")

    def fail_at_6(value: int) -> int:
        if value == 6:
            raise ValueError
        return value

    stage.sdf.apply(fail_at_6).to_topic(stage.out)
    report = run(stage.app, numbers(3, start=5))
    assert report.failure is not None
    assert (report.records, report.read_bytes, report.produced_bytes, report.commit_seconds) == (0, 0, 0, 0)


def test_a_batch_may_hold_several_partitions_and_topics_in_several_chunks(processing_mode: str) -> None:
    app = application()
    for name in ("in", "second"):
        app.dataframe(app.topic(name)).apply(lambda value: value)
    chunks = [numbers(2), numbers(1, partition=1), numbers(2, start=2), numbers(1, topic="second")]
    report = run(app, *chunks)
    assert report.ranges == {
        PLACE: OffsetRange("in", 0, 0, 4),
        TopicPartition("in", 1): OffsetRange("in", 1, 0, 1),
        TopicPartition("second", 0): OffsetRange("second", 0, 0, 1),
    }
    assert (report.records, report.outputs) == (6, 6)
    collected = [("in", 0, 0), ("in", 0, 1), ("in", 0, 2), ("in", 0, 3), ("second", 0, 0)]
    # A commit for each chunk, or one for each partition.
    collected.insert(2 if processing_mode == "micro-batch" else 4, ("in", 1, 0))
    assert [(output.topic, output.partition, output.offset) for output in report.collected] == collected


def test_outputs_are_counted_and_collected_only_if_somebody_asks() -> None:
    stage = Stage()
    stage.sdf.apply(lambda value: value)
    assert run(stage.app, numbers(3), count_outputs=False, collect=False).outputs == 0
    counted = run(stage.app, numbers(3), collect=False)
    assert (counted.outputs, counted.collected) == (3, [])


def test_tasks_forget_the_last_batch_when_the_next_begins() -> None:
    stage = Stage()
    stage.sdf.print().to_topic(stage.out)
    tasks = Process(
        TaskExecutor(definition_of(stage.app).task_spec(count_outputs=True, collect=True), Writer()),
        stage.app.config.processing_mode,
    )
    tasks.run([numbers(2)], BatchContext())
    report = tasks.run([numbers(1, start=2)], BatchContext())
    assert (report.records, report.produced, report.outputs, len(report.collected)) == (1, 1, 1, 1)
    assert [line for _, line in report.shown] == ["{'value': 2}"]
    empty = tasks.run([], BatchContext())
    assert (empty.ranges, empty.records, empty.shown, empty.complete) == ({}, 0, [], True)


def test_compacted_offsets_with_gaps_end_behind_the_last_record() -> None:
    stage = Stage()
    report = run(stage.app, chunk(b"1", b"2", b"3", offsets=[10, 17, 40]))
    assert report.ranges[PLACE] == OffsetRange("in", 0, 10, 41)
    assert report.records == 3


def test_processed_offsets_are_reported_if_somebody_listens() -> None:
    stage = Stage(on_message_processed=print, on_processing_error=lambda *_: True)
    stage.sdf.filter(lambda value: 1 / (value - 1))
    report = run(stage.app, numbers(3), numbers(1, partition=1))
    assert report.processed == {PLACE: [0, 2], TopicPartition("in", 1): [0]}
    silent = Stage()
    assert run(silent.app, numbers(3)).processed == {}


def test_a_live_table_reports_its_last_rows_only() -> None:
    stage = Stage()
    stage.sdf.print_table(size=2, metadata=False)
    assert [row for _, row in run(stage.app, numbers(3)).shown] == [{"value": "0"}, {"value": "1"}, {"value": "2"}]
    assert [row for _, row in run(stage.app, numbers(3), live_tables=True).shown] == [{"value": "1"}, {"value": "2"}]


def test_reports_add_up() -> None:
    stage = Stage(on_message_processed=print)
    stage.sdf.print()
    one = run(stage.app, numbers(2))
    one.merge(run(stage.app, numbers(1, partition=1)))
    assert (one.records, one.outputs, len(one.collected), len(one.shown)) == (3, 3, 3, 3)
    assert sorted(one.ranges) == [PLACE, TopicPartition("in", 1)]
    assert one.processed == {PLACE: [0, 1], TopicPartition("in", 1): [0]}


# -- Keys, tombstones, headers, timestamps ---------------------------------------------------------------------------


class Refusing(Deserializer):
    """Must never be called."""

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        raise AssertionError("called")


def test_none_is_never_deserialized_but_empty_bytes_are() -> None:
    stage = Stage({"value_deserializer": Refusing(), "key_deserializer": Refusing()})
    stage.sdf.apply(lambda *record: record, metadata=True)
    assert values(run(stage.app, chunk(None))) == [(None, None, 0, None)]
    for key, value in ((b"", None), (None, b"")):
        report = run(stage.app, chunk(value, keys=[key]))
        assert report.failure is not None
        assert report.failure.kind == "consumer"


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [("bytes", b"k", b"k"), ("bytes", b"", b""), ("str", b"", ""), ("str", b"k", "k"), ("json", b'{"a":1}', {"a": 1})],
)
def test_keys_are_deserialized_as_the_topic_says(name: str, data: bytes, expected: Any) -> None:
    stage = Stage({"key_deserializer": name})
    stage.sdf.apply(lambda value, key, timestamp, headers: key, metadata=True)
    assert values(run(stage.app, chunk(b"1", b"2", keys=[data, None]))) == [expected, None]


def test_an_empty_value_is_an_error_of_the_json_deserializer() -> None:
    report = run(Stage().app, chunk(b""))
    assert report.failure is not None
    assert report.failure.message.startswith(
        "the value of in[0] at offset 0 cannot be deserialized: the bytes are not JSON"
    )


def test_headers_arrive_unchanged_and_none_where_there_are_none() -> None:
    stage = Stage()
    stage.sdf.apply(lambda value, key, timestamp, headers: headers, metadata=True)
    pairs: Headers = [("a", b"1"), ("a", None), ("b", b"\xff")]
    assert values(run(stage.app, chunk(b"1", b"2", headers=[pairs, None]))) == [pairs, None]
    assert values(run(stage.app, chunk(b"1"))) == [None]


@pytest.mark.rows("PF-J4")
def test_a_timestamp_extractor_gives_records_their_timestamp() -> None:
    stage = Stage({"timestamp_extractor": extract})
    seen: list[Any] = []
    stage.sdf.apply(lambda value, key, timestamp, headers: timestamp, metadata=True).update(
        lambda value: seen.append(message_context().timestamp)
    )
    report = run(stage.app, chunk(b'{"at":5}', timestamps=[100], headers=[[("h", b"")]]))
    assert values(report) == [106]
    # The context tells what Kafka has.
    assert seen[0].milliseconds == 100


@pytest.mark.parametrize(
    ("extractor", "reason"),
    [
        (lambda *_: -1, "a timestamp cannot be negative, got -1"),
        (lambda *_: 1.5, "a timestamp must be an integer of milliseconds, got float"),
        (lambda value, *_: value["missing"], "'missing'"),
    ],
)
def test_a_timestamp_that_cannot_be_extracted_is_a_consumer_error(extractor: Any, reason: str) -> None:
    stage = Stage({"timestamp_extractor": extractor})
    report = run(stage.app, chunk(b"{}"))
    assert report.failure is not None
    assert report.failure.kind == "consumer"
    assert report.failure.message.startswith(f"the timestamp of in[0] at offset 0 cannot be extracted: {reason};")


class Lines(Deserializer):
    """One record per line; a line "bad" fails, "ignore" skips the whole record."""

    @property
    def split_values(self) -> bool:
        return True

    def __call__(self, value: bytes, ctx: SerializationContext) -> Iterator[str]:
        for line in value.decode().splitlines():
            if line == "bad":
                raise ValueError("a bad line")
            if line == "ignore":
                raise IgnoreMessage("nothing to see")
            yield line


def test_a_deserializer_may_split_a_value_into_records() -> None:
    stage = Stage({"value_deserializer": Lines()}, on_message_processed=print)
    stage.sdf.apply(lambda *record: (*record, message_context().offset), metadata=True)
    report = run(stage.app, chunk(b"a\nb", b"", None, b"c", timestamps=[7, 8, 9, 10], keys=[b"k", None, None, None]))
    assert values(report) == [
        ("a", b"k", 7, None, 0),
        ("b", b"k", 7, None, 0),
        (None, None, 9, None, 2),
        ("c", None, 10, None, 3),
    ]
    assert (report.records, report.outputs) == (4, 4)
    assert report.processed == {PLACE: [0, 1, 2, 3]}


def test_a_split_value_that_fails_halfway_gives_no_records_and_blames_the_value() -> None:
    stage = Stage({"value_deserializer": Lines()})
    report = run(stage.app, chunk(b"a\nbad\nb", b"c"))
    assert report.failure is not None
    assert report.failure.message.startswith("the value of in[0] at offset 0 cannot be deserialized: a bad line;")
    assert values(report) == []
    assert values(run(stage.app, chunk(b"a\nignore", b"c"))) == ["c"]


def test_the_timestamp_of_each_split_record_is_extracted() -> None:
    stage = Stage({"value_deserializer": Lines(), "timestamp_extractor": lambda value, *_: len(value)})
    stage.sdf.apply(lambda value, key, timestamp, headers: timestamp, metadata=True)
    assert values(run(stage.app, chunk(b"a\nbbb"))) == [1, 3]


# -- Limits and positions --------------------------------------------------------------------------------------------


def test_a_task_out_of_time_stops_after_one_record() -> None:
    stage = Stage()
    stage.sdf.apply(lambda value: value)
    report = run(stage.app, numbers(3), numbers(3, start=3), context=BatchContext(time_limit_s=0))
    assert (end(report), report.complete, report.records) == (1, False, 1)


def test_time_runs_out_on_records_that_are_skipped_too() -> None:
    stage = Stage({"value_deserializer": Lines()}, on_consumer_error=lambda *_: True)
    for data in (b"bad", b"ignore"):
        report = run(stage.app, chunk(data, data, data), context=BatchContext(time_limit_s=0))
        assert (end(report), report.complete) == (1, False)


def test_a_task_stops_between_records_when_there_are_enough_outputs() -> None:
    stage = Stage()
    stage.sdf.apply(lambda value: [value, value], expand=True)
    report = run(stage.app, numbers(2), numbers(2, start=2), context=BatchContext(output_limit=3))
    assert (values(report), end(report), report.complete) == ([0, 0, 1, 1], 2, False)


def test_enough_outputs_at_the_very_end_leave_the_report_complete() -> None:
    stage = Stage()
    stage.sdf.apply(lambda value: value)
    report = run(stage.app, numbers(2), context=BatchContext(output_limit=2))
    assert (end(report), report.complete) == (2, True)


def test_outputs_are_counted_over_all_topics_of_a_batch() -> None:
    app = application()
    for name in ("in", "second"):
        app.dataframe(app.topic(name)).apply(lambda value: value)
    report = run(app, numbers(2), numbers(5, topic="second"), context=BatchContext(output_limit=3))
    assert report.ranges[TopicPartition("second", 0)].end == 1
    assert report.outputs == 3


@pytest.mark.parametrize(
    ("position", "expected"), [(0, [4, 5, 6]), (4, [4, 5, 6]), (5, [5, 6]), (6, [6]), (7, []), (99, [])]
)
def test_records_below_the_position_of_their_partition_are_left_out(position: int, expected: list[int]) -> None:
    stage = Stage()
    stage.sdf.apply(lambda value: value)
    context = BatchContext(positions={PLACE: position, TopicPartition("in", 1): 100})
    report = run(stage.app, numbers(3, start=4), context=context)
    assert values(report) == expected
    assert (report.records, report.complete) == (len(expected), True)
    assert report.ranges == ({PLACE: OffsetRange("in", 0, expected[0], 7)} if expected else {})


def test_a_part_of_a_chunk_keeps_its_columns_together() -> None:
    whole = chunk(
        b"1", b"2", b"3", offsets=[1, 5, 9], keys=[b"a", b"b", b"c"], timestamps=[7, 8, 9], headers=[None, [], None]
    )
    part = whole.from_offset(4)
    assert (part.offsets, part.keys, part.values, part.timestamps) == ([5, 9], [b"b", b"c"], [b"2", b"3"], [8, 9])
    assert (part.timestamp_types, part.headers) == ([1, 1], [[], None])


# -- Message context -------------------------------------------------------------------------------------------------


def test_the_message_context_tells_where_the_record_came_from() -> None:
    stage = Stage({"key_deserializer": "str"})
    stage.sdf.apply(lambda value: message_context())
    report = run(
        stage.app,
        chunk(
            b"11",
            b"2",
            start=4,
            partition=3,
            keys=["kä".encode(), None],
            timestamps=[7, 8],
            headers=[[("h", b"")], None],
        ),
    )
    first, second = values(report)
    assert first.timestamp is not None
    assert (first.topic, first.partition, first.offset, first.size, first.key) == ("in", 3, 4, 5, "kä")
    assert (first.timestamp.milliseconds, first.timestamp.type) == (7, TimestampType.TIMESTAMP_CREATE_TIME)
    assert (first.headers, first.leader_epoch) == ([("h", b"")], None)
    assert (second.offset, second.key, second.headers) == (5, None, None)


def test_the_message_context_can_be_replaced_until_the_next_record() -> None:
    other = MessageContext(topic="other", partition=9, offset=99, size=0)
    stage = Stage()
    stage.sdf.update(lambda value: set_message_context(other) if value == 0 else None).apply(
        lambda value: message_context().topic
    ).update(lambda value: set_message_context(None)).apply(lambda value: (value, message_context().topic))
    assert values(run(stage.app, numbers(2))) == [("other", "in"), ("in", "in")]


def test_there_is_no_message_context_outside_of_a_task() -> None:
    # Tests of joins leave one.
    set_message_context(None)
    stage = Stage()
    stage.sdf.apply(lambda value: message_context())
    run(stage.app, numbers(1))
    with pytest.raises(InvalidOperationError, match="no record is being processed"):
        message_context()
