"""Tasks: what they do with records, with errors and with limits, and how far they say that they came."""

import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import cloudpickle
import pytest

from streamrt import Application, MessageContext, Topic, message_context, set_message_context
from streamrt.errors import (
    ConsumerError,
    IgnoreMessage,
    InvalidOperationError,
    KeyDeserializationError,
    MissingColumnError,
    ProcessingError,
    ProducerError,
    UnpicklableOperatorError,
    ValueDeserializationError,
    ValueSerializationError,
)
from streamrt.models import Headers, OffsetRange, RawRecord, Record, TimestampType, TopicPartition
from streamrt.runtime import BatchContext, Chunk, CommitSchedule, Report, Tasks, TaskSpec
from streamrt.runtime.task import Task
from streamrt.serializers import Deserializer, JSONSerializer, SerializationContext, Serializer
from streamrt.topology import SourceOperator
from tests.unit.apps import Stage, application

PLACE = TopicPartition("in", 0)


class Writer:
    """Keeps what it gets; refuses values and loses deliveries as told."""

    def __init__(self, refuse: bytes | None = None) -> None:
        self.records: list[tuple[str, bytes | None, bytes | None, int, Headers | None]] = []
        self.lost: list[Exception] = []
        self.flushes = 0
        self.refuse = refuse

    def produce(
        self, topic: str, value: bytes | None, key: bytes | None, timestamp: int, headers: Headers | None
    ) -> None:
        if self.refuse is not None and value == self.refuse:
            raise ProducerError(f"topic {topic!r} does not take it")
        self.records.append((topic, value, key, timestamp, headers))

    def flush(self) -> list[Exception]:
        self.flushes += 1
        lost, self.lost = self.lost, []
        return lost

    @property
    def values(self) -> list[bytes | None]:
        return [record[1] for record in self.records]


def chunk(*values: bytes | None, start: int = 0, partition: int = 0, topic: str = "in", **columns: Any) -> Chunk:
    """Return consecutive records without keys, headers and timestamps unless given."""
    count = len(values)
    return Chunk(
        topic,
        partition,
        columns.get("offsets", list(range(start, start + count))),
        columns.get("keys", [None] * count),
        list(values),
        columns.get("timestamps", [0] * count),
        [TimestampType.TIMESTAMP_CREATE_TIME] * count,
        columns.get("headers"),
    )


def numbers(count: int, start: int = 0, **columns: Any) -> Chunk:
    """Return records whose values are their offsets."""
    return chunk(*(str(start + index).encode() for index in range(count)), start=start, **columns)


def run(
    app: Application,
    *chunks: Chunk,
    writer: Writer | None = None,
    context: BatchContext | None = None,
    **wishes: bool,
) -> Report:
    """Process chunks with the tasks of an application, as one micro-batch."""
    tasks = Tasks(app.task_spec(**{"count_outputs": True, "collect": True, **wishes}), writer or Writer())
    return tasks.run(chunks, context or BatchContext())


def values(report: Report) -> list[Any]:
    return [output.value for output in report.collected]


def end(report: Report, place: TopicPartition = PLACE) -> int:
    return report.ranges[place].end


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
    assert report.seconds > 0
    output = report.collected[-1]
    assert (output.value, output.topic, output.partition, output.offset) == (7, "in", 0, 7)


def test_a_batch_may_hold_several_partitions_and_topics_in_several_chunks() -> None:
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
    assert [(output.topic, output.partition, output.offset) for output in report.collected] == [
        *(("in", 0, 0), ("in", 0, 1), ("in", 1, 0), ("in", 0, 2), ("in", 0, 3)),
        ("second", 0, 0),
    ]


def test_outputs_are_counted_and_collected_only_if_somebody_asks() -> None:
    stage = Stage()
    stage.sdf.apply(lambda value: value)
    assert run(stage.app, numbers(3), count_outputs=False, collect=False).outputs == 0
    counted = run(stage.app, numbers(3), collect=False)
    assert (counted.outputs, counted.collected) == (3, [])


def test_tasks_forget_the_last_batch_when_the_next_begins() -> None:
    stage = Stage()
    stage.sdf.print().to_topic(stage.out)
    tasks = Tasks(stage.app.task_spec(count_outputs=True, collect=True), Writer())
    tasks.run([numbers(2)], BatchContext())
    report = tasks.run([numbers(1, start=2)], BatchContext())
    assert (report.records, report.produced, report.outputs, len(report.collected)) == (1, 1, 1, 1)
    assert [line for _, line in report.shown] == ["2"]
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


def test_a_task_begins_at_a_source() -> None:
    stage = Stage()
    stage.sdf.update(print)
    spec = stage.app.task_spec()
    with pytest.raises(TypeError, match="a task begins at a source"):
        Task(spec, spec.topology.nodes[1], Writer())


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


def extract(value: Any, headers: Any, timestamp: int, kind: TimestampType) -> int:
    assert kind is TimestampType.TIMESTAMP_CREATE_TIME
    return int(value["at"]) + timestamp + len(headers or [])


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
        (lambda *_: 1.5, "a timestamp is an integer of milliseconds, got float"),
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


# -- Consumer errors -------------------------------------------------------------------------------------------------


def test_a_deserializer_can_ignore_a_record_without_an_error() -> None:
    class Ignoring(Deserializer):
        def __call__(self, value: bytes, ctx: SerializationContext) -> bytes:
            if value == b"skip":
                raise IgnoreMessage("as asked")
            return value

    calls: list[Any] = []
    for side in ("value_deserializer", "key_deserializer"):
        stage = Stage(
            {"value_deserializer": "bytes", side: Ignoring()}, on_consumer_error=lambda *error: calls.append(error)
        )
        keys = [b"skip", b"k"]
        stage.sdf.apply(lambda value: value)
        report = run(stage.app, chunk(b"skip", b"kept", keys=keys))
        assert values(report) == [b"kept"]
        assert (end(report), report.failure) == (2, None)
    assert calls == []


def test_a_record_that_cannot_be_read_stops_the_task_and_names_the_place() -> None:
    stage = Stage()
    stage.sdf.apply(lambda value: value)
    report = run(stage.app, chunk(b"1", b"{", b"3", start=4))
    assert (end(report), report.complete, report.records, values(report)) == (5, False, 1, [1])
    failure = report.failure
    assert failure is not None
    assert (failure.kind, failure.partition, failure.offset) == ("consumer", PLACE, 5)
    assert failure.message.startswith("the value of in[0] at offset 5 cannot be deserialized: the bytes are not JSON")
    assert failure.message.endswith(
        "; skip such records with on_consumer_error, or set another deserializer for the topic"
    )
    assert isinstance(failure.cause, ValueDeserializationError)
    assert isinstance(failure.error(), ConsumerError)
    assert "Traceback" in failure.traceback


def test_the_consumer_callback_gets_the_error_the_raw_record_and_a_logger() -> None:
    seen: list[Any] = []

    def skip(error: Exception, record: RawRecord | None, logger: logging.Logger) -> bool:
        seen.append((error, record, logger))
        return True

    stage = Stage({"key_deserializer": "int"}, on_consumer_error=skip, on_message_processed=print)
    stage.sdf.apply(lambda value: value)
    four = b"\0\0\0\4"
    report = run(
        stage.app,
        chunk(b"{", b"2", b"3", keys=[four, b"k", four], timestamps=[7, 8, 9], headers=[[("h", b"")], None, None]),
    )
    assert (values(report), end(report), report.complete, report.records) == ([3], 3, True, 3)
    assert report.processed == {PLACE: [2]}
    (error, record, logger), (second, *_) = seen
    assert isinstance(error, ValueDeserializationError)
    assert isinstance(second, KeyDeserializationError)
    assert str(second).startswith("the key of in[0] at offset 1 cannot be deserialized: an int has 4 bytes, got 1")
    assert (record.topic(), record.partition(), record.offset(), record.value()) == ("in", 0, 0, b"{")
    assert (record.key(), record.timestamp(), record.headers()) == (four, (1, 7), [("h", b"")])
    assert (len(record), record.error(), record.latency(), record.leader_epoch()) == (5, None, None, None)
    assert logger.name == "streamrt"


def test_where_key_and_value_are_bad_the_reason_belongs_to_the_part_that_is_named() -> None:
    report = run(Stage({"key_deserializer": "int"}).app, chunk(b"{", keys=[b"k"]))
    assert report.failure is not None
    assert report.failure.message.startswith(
        "the value of in[0] at offset 0 cannot be deserialized: the bytes are not JSON"
    )


# -- The user's decision about an error ------------------------------------------------------------------------------


def refuses_to_be_a_bool(*_: Any) -> Any:
    class Strange:
        def __bool__(self) -> bool:
            raise ValueError("neither")

    return Strange()


def raises(*_: Any) -> bool:
    raise ValueError("in the callback")


KINDS: dict[str, Callable[[Stage], Any]] = {
    "consumer": lambda stage: None,
    "processing": lambda stage: stage.sdf.update(lambda value: 1 / (value - 1)),
    "producer": lambda stage: stage.sdf.apply(lambda value: {value} if value == 1 else value).to_topic(stage.out),
}
ERRORS = {"consumer": ConsumerError, "processing": ProcessingError, "producer": ProducerError}


def second_record_fails(kind: str, callback: Any) -> Report:
    """Run three records of which the second fails."""
    stage = Stage(**{f"on_{kind}_error": callback})
    KINDS[kind](stage)
    return run(stage.app, chunk(b"0", b"{" if kind == "consumer" else b"1", b"2"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", [True, 1, "yes", [0]])
def test_a_callback_that_returns_something_true_skips_the_record(kind: str, answer: Any) -> None:
    report = second_record_fails(kind, lambda *_: answer)
    assert (end(report), report.complete, report.failure) == (3, True, None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("callback", [None, lambda *_: False, lambda *_: None, lambda *_: 0, lambda *_: ""])
def test_without_a_callback_or_with_a_false_answer_the_task_stops_before_the_record(kind: str, callback: Any) -> None:
    report = second_record_fails(kind, callback)
    assert (end(report), report.complete) == (1, False)
    assert report.failure is not None
    assert (report.failure.kind, report.failure.offset) == (kind, 1)
    assert type(report.failure.error()) is ERRORS[kind]
    assert "in[0] at offset 1" in report.failure.message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("callback", "reason"), [(raises, "in the callback"), (refuses_to_be_a_bool, "neither")])
def test_a_callback_that_fails_itself_stops_the_task_and_is_named(
    kind: str, callback: Callable[..., Any], reason: str
) -> None:
    report = second_record_fails(kind, callback)
    assert end(report) == 1
    assert report.failure is not None
    assert report.failure.kind == "callback"
    assert report.failure.message.startswith(f"the callback on_{kind}_error itself failed on ")
    assert report.failure.message.endswith(f"ValueError: {reason}")
    assert isinstance(report.failure.error(), ProcessingError)


# -- Processing errors -----------------------------------------------------------------------------------------------


def test_a_failure_names_operator_record_and_the_line_of_the_users_function() -> None:
    def divide(value: int) -> float:
        return 1 / value

    stage = Stage()
    stage.sdf.update(lambda value: None).apply(divide)
    report = run(stage.app, chunk(b"0", start=8, partition=3))
    failure = report.failure
    assert failure is not None
    line = divide.__code__.co_firstlineno + 1
    assert failure.message == (
        f"apply-2 (divide) defined at test_task.py:{line + 3} failed on in[3] at offset 8 "
        f"(test_task.py:{line} in divide): ZeroDivisionError: division by zero"
    )
    assert isinstance(failure.cause, ZeroDivisionError)
    assert "ZeroDivisionError" in failure.traceback


def test_of_several_operators_the_one_that_failed_is_named() -> None:
    def items(value: int) -> Iterator[int]:
        yield value
        raise RuntimeError("late")

    stage = Stage()
    stage.sdf.apply(items, expand=True).filter(lambda value: True).apply(lambda value: value)
    failure = run(stage.app, chunk(b"1")).failure
    assert failure is not None
    assert failure.message.startswith("apply-1 (items, expand)")
    assert failure.message.endswith("in items): RuntimeError: late")


def test_a_column_error_names_the_expression() -> None:
    stage = Stage()
    stage.sdf["x"] = stage.sdf["a"] + stage.sdf["b"]
    failure = run(stage.app, chunk(b'{"a":1}')).failure
    assert failure is not None
    assert failure.message.startswith("assign-1 (x = (a + b)) defined at test_task.py:")
    assert failure.message.endswith("MissingColumnError: column 'b' is missing; the value has 'a'")
    assert isinstance(failure.cause, MissingColumnError)


def test_the_processing_callback_gets_the_record_as_it_came_in() -> None:
    seen: list[Any] = []

    def skip(error: Exception, record: Record | None, logger: logging.Logger) -> bool:
        seen.append((error, record, logger.name, message_context().offset))
        return True

    stage = Stage(on_processing_error=skip)
    stage.sdf.set_timestamp(lambda *_: 99).apply(lambda value: value["x"])
    run(stage.app, chunk(b'{"a":1}', start=4, keys=[b"k"], timestamps=[7], headers=[[("h", b"")]]))
    ((error, record, name, offset),) = seen
    assert isinstance(error, KeyError)
    assert (record.value, record.key, record.timestamp, record.headers) == ({"a": 1}, b"k", 7, [("h", b"")])
    assert (record.topic, record.partition, record.offset, record.size, record.leader_epoch) == ("in", 0, 4, 8, None)
    assert (name, offset) == ("streamrt", 4)


def test_a_skipped_record_keeps_what_it_put_out_and_later_branches_do_not_run() -> None:
    stage = Stage(on_processing_error=lambda *_: True)
    later: list[int] = []
    first = stage.sdf.apply(lambda value: value)
    first.to_topic(stage.out)
    stage.sdf.apply(lambda value: 1 / value)
    stage.sdf.update(later.append)
    writer = Writer()
    report = run(stage.app, chunk(b"0", b"1"), writer=writer)
    assert writer.values == [b"0", b"1"]
    assert later == [1]
    assert end(report) == 2


def test_a_function_that_exits_does_not_end_the_process() -> None:
    stage = Stage()
    stage.sdf.update(lambda value: exit(3))
    failure = run(stage.app, chunk(b"1")).failure
    assert failure is not None
    assert failure.kind == "processing"
    assert "RuntimeError: the function called SystemExit(3)" in failure.message


def test_after_a_failure_the_rest_of_the_batch_is_taken_but_not_processed() -> None:
    stage = Stage()
    stage.sdf.update(lambda value: 1 / (value - 1))
    taken: list[int] = []

    def feed() -> Iterator[Chunk]:
        for number in range(3):
            taken.append(number)
            yield numbers(2, start=2 * number)

    report = Tasks(stage.app.task_spec(collect=True), Writer()).run(feed(), BatchContext())
    assert taken == [0, 1, 2]
    assert (report.ranges, report.complete) == ({PLACE: OffsetRange("in", 0, 0, 1)}, False)


def test_a_failure_at_the_first_record_reports_an_empty_range() -> None:
    stage = Stage()
    stage.sdf.update(lambda value: 1 / 0)
    for start in (0, 7):
        report = run(stage.app, numbers(2, start=start))
        assert report.ranges == {PLACE: OffsetRange("in", 0, start, start)}
        assert (report.records, report.complete) == (0, False)


# -- Producer errors -------------------------------------------------------------------------------------------------


def test_the_producer_callback_gets_the_output_and_where_it_came_from() -> None:
    seen: list[Any] = []

    def skip(error: Exception, record: Record | None, logger: logging.Logger) -> bool:
        seen.append((error, record))
        return True

    stage = Stage(on_producer_error=skip)
    stage.sdf.apply(lambda value: {value}).to_topic(stage.out).apply(lambda value: "goes on")
    report = run(stage.app, chunk(b"1", start=4, keys=[b"k"], timestamps=[7]))
    ((error, record),) = seen
    assert isinstance(error, ValueSerializationError)
    assert (record.value, record.key, record.timestamp, record.topic, record.offset) == ({1}, b"k", 7, "in", 4)
    assert (report.produced, values(report)) == (0, ["goes on"])


def test_a_record_that_the_writer_refuses_is_a_producer_error() -> None:
    stage = Stage()
    stage.sdf.to_topic(stage.out)
    report = run(stage.app, numbers(3), writer=Writer(refuse=b"1"))
    assert report.failure is not None
    assert report.failure.kind == "producer"
    assert report.failure.message == (
        "topic 'out' does not take it (input in[0] at offset 1); skip such records with on_producer_error"
    )
    assert (end(report), report.produced) == (1, 1)


def test_a_refused_record_can_be_skipped() -> None:
    stage = Stage(on_producer_error=lambda *_: True)
    stage.sdf.to_topic(stage.out)
    writer = Writer(refuse=b"1")
    report = run(stage.app, numbers(3), writer=writer)
    assert (report.failure, report.produced, writer.values) == (None, 2, [b"0", b"2"])


class Tagging(JSONSerializer):
    """Adds headers."""

    @property
    def extra_headers(self) -> dict[str, bytes]:
        return {"tag": b"x"}


def test_extra_headers_of_serializers_are_appended_to_outputs() -> None:
    stage = Stage(out={"value_serializer": Tagging()})
    stage.sdf.to_topic(stage.out).apply(lambda value, key, timestamp, headers: headers, metadata=True)
    writer = Writer()
    report = run(stage.app, chunk(b"1", b"2", headers=[[("h", b"")], None]), writer=writer)
    assert [record[4] for record in writer.records] == [[("h", b""), ("tag", b"x")], [("tag", b"x")]]
    assert values(report) == [[("h", b"")], None]


class OnlyStrings(Serializer):
    """Fails on everything else, None included."""

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes:
        return cast("bytes", value.encode())


def test_a_key_of_none_is_never_serialized() -> None:
    stage = Stage(out={"key_serializer": OnlyStrings()})
    stage.sdf.to_topic(stage.out)
    writer = Writer(refuse=b"1")
    report = run(stage.app, numbers(2), writer=writer)
    assert [record[2] for record in writer.records] == [None]
    assert report.failure is not None
    assert isinstance(report.failure.cause, ProducerError)


def test_a_lost_delivery_takes_the_progress_of_the_batch_back() -> None:
    stage = Stage(on_message_processed=print)
    stage.sdf.to_topic(stage.out)
    writer = Writer()
    writer.lost = [ProducerError("the broker lost it"), ProducerError("and another")]
    report = run(stage.app, numbers(3, start=5), numbers(1, partition=1), writer=writer)
    second = TopicPartition("in", 1)
    assert report.ranges == {PLACE: OffsetRange("in", 0, 5, 5), second: OffsetRange("in", 1, 0, 0)}
    assert (report.complete, report.processed) == (False, {})
    failure = report.failure
    assert failure is not None
    assert (failure.kind, failure.partition, failure.offset) == ("producer", PLACE, None)
    assert failure.message == "the broker lost it (while processing in[0], in[1])"


def test_lost_deliveries_can_be_skipped_and_come_without_a_record() -> None:
    seen: list[Any] = []

    def skip(error: Exception, record: Record | None, logger: logging.Logger) -> bool:
        seen.append((str(error), record))
        return True

    stage = Stage(on_producer_error=skip)
    stage.sdf.to_topic(stage.out)
    writer = Writer()
    writer.lost = [ProducerError("one"), ProducerError("two")]
    report = run(stage.app, numbers(3), writer=writer)
    assert (end(report), report.failure, seen) == (3, None, [("one", None), ("two", None)])


@pytest.mark.parametrize(("callback", "reason"), [(raises, "in the callback"), (refuses_to_be_a_bool, "neither")])
def test_a_callback_that_fails_on_a_lost_delivery_is_named(callback: Callable[..., Any], reason: str) -> None:
    stage = Stage(on_producer_error=callback)
    stage.sdf.to_topic(stage.out)
    writer = Writer()
    writer.lost = [ProducerError("lost")]
    report = run(stage.app, numbers(3), writer=writer)
    assert end(report) == 0
    assert report.failure is not None
    assert report.failure.kind == "callback"
    assert report.failure.message == (
        "the callback on_producer_error itself failed on ProducerError('lost'): "
        f"ValueError: {reason} (while processing in[0])"
    )


def test_of_a_processing_failure_and_a_lost_delivery_the_first_is_told_but_nothing_is_done() -> None:
    stage = Stage()
    stage.sdf.to_topic(stage.out).update(lambda value: 1 / (value - 1))
    writer = Writer()
    writer.lost = [ProducerError("lost")]
    report = run(stage.app, numbers(3), writer=writer)
    assert end(report) == 0
    assert report.failure is not None
    assert report.failure.kind == "processing"


# -- Limits and positions --------------------------------------------------------------------------------------------


def test_a_task_out_of_time_stops_after_one_record() -> None:
    stage = Stage()
    stage.sdf.apply(lambda value: value)
    report = run(stage.app, numbers(3), numbers(3, start=3), context=BatchContext(seconds=0))
    assert (end(report), report.complete, report.records) == (1, False, 1)


def test_time_runs_out_on_records_that_are_skipped_too() -> None:
    stage = Stage({"value_deserializer": Lines()}, on_consumer_error=lambda *_: True)
    for data in (b"bad", b"ignore"):
        report = run(stage.app, chunk(data, data, data), context=BatchContext(seconds=0))
        assert (end(report), report.complete) == (1, False)


def test_a_task_stops_between_records_when_there_are_enough_outputs() -> None:
    stage = Stage()
    stage.sdf.apply(lambda value: [value, value], expand=True)
    report = run(stage.app, numbers(2), numbers(2, start=2), context=BatchContext(outputs=3))
    assert (values(report), end(report), report.complete) == ([0, 0, 1, 1], 2, False)


def test_enough_outputs_at_the_very_end_leave_the_report_complete() -> None:
    stage = Stage()
    stage.sdf.apply(lambda value: value)
    report = run(stage.app, numbers(2), context=BatchContext(outputs=2))
    assert (end(report), report.complete) == (2, True)


def test_outputs_are_counted_over_all_topics_of_a_batch() -> None:
    app = application()
    for name in ("in", "second"):
        app.dataframe(app.topic(name)).apply(lambda value: value)
    report = run(app, numbers(2), numbers(5, topic="second"), context=BatchContext(outputs=3))
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
    stage = Stage()
    stage.sdf.apply(lambda value: message_context())
    run(stage.app, numbers(1))
    for call in (message_context, lambda: set_message_context(None)):
        with pytest.raises(InvalidOperationError, match="there is no record to tell about"):
            call()


# -- The specification -----------------------------------------------------------------------------------------------


def operators() -> Stage:
    """Return an application with every operator."""
    stage = Stage({"timestamp_extractor": extract}, on_processing_error=lambda *_: False)
    sdf = stage.sdf
    sdf = sdf.apply(lambda value: [value], expand=True).filter(lambda value: True).update(lambda value: None)
    sdf = sdf.apply(lambda *record: record[0], metadata=True)[sdf["at"] > 0]
    sdf["x"] = (sdf["at"] * 2).apply(str).contains("2") | sdf.contains("at")
    sdf["y"] = 5
    sdf.fill("z", at=1).drop("z", errors="ignore").print(pretty=False).print_table(size=1)
    sdf = sdf.set_timestamp(lambda *_: 5).set_headers(lambda *_: [("h", b"")])
    sdf = sdf[["at", "x", "y"]]
    sdf.to_topic(stage.out, key=lambda value: str(value["at"]))
    out = stage.out
    sdf.to_topic(lambda *_: out)
    return stage


def test_a_specification_survives_pickling_with_every_operator() -> None:
    stage = operators()
    spec = stage.app.task_spec(count_outputs=True, collect=True)
    again = TaskSpec.loads(spec.dumps())
    assert [str(node) for node in again.topology.nodes] == [str(node) for node in spec.topology.nodes]
    assert {type(node.operator).__name__ for node in spec.topology.nodes} == {
        *("SourceOperator", "Apply", "Filter", "Update", "Where", "Assign", "Print", "PrintTable"),
        *("SetTimestamp", "SetHeaders", "ToTopic"),
    }
    reports, writers = [], []
    for each in (spec, again):
        writers.append(Writer())
        reports.append(Tasks(each, writers[-1]).run([chunk(b'{"at":2}', b'{"at":3}')], BatchContext()))
    assert reports[0].failure is None
    assert reports[0].collected == reports[1].collected
    assert writers[0].records == writers[1].records
    assert len(writers[0].records) == 4


def test_what_is_no_specification_is_not_loaded() -> None:
    with pytest.raises(TypeError, match="expected a TaskSpec, got dict"):
        TaskSpec.loads(pickle.dumps({}))


def test_an_operator_that_holds_a_lock_is_named() -> None:
    lock = threading.Lock()
    stage = Stage()
    stage.sdf.update(lambda value: None)
    stage.sdf.apply(lambda value: lock.acquire(blocking=False))
    with pytest.raises(UnpicklableOperatorError) as caught:
        stage.app.task_spec().dumps()
    message = str(caught.value)
    assert message.startswith("operator apply-2 (")
    assert "defined at test_task.py:" in message
    assert "cannot pickle '_thread.lock' object" in message
    assert "must not hold on to clients, locks, open files or the application" in message


@pytest.mark.parametrize("kind", ["consumer", "processing", "producer"])
def test_a_callback_that_holds_a_lock_is_named(kind: str) -> None:
    lock = threading.Lock()
    callback: Any = lambda *_: lock.locked()  # noqa: E731 - its type is what matters
    stage = Stage(**{f"on_{kind}_error": callback})
    with pytest.raises(UnpicklableOperatorError, match=f"the callback on_{kind}_error cannot be sent"):
        stage.app.task_spec().dumps()


def test_a_column_that_holds_a_lock_is_named() -> None:
    lock = threading.Lock()
    stage = Stage()
    stage.sdf["x"] = stage.sdf["a"].apply(lambda item: lock.locked())
    with pytest.raises(UnpicklableOperatorError, match=r"operator assign-1 \(x = "):
        stage.app.task_spec().dumps()


def test_failures_and_reports_can_be_pickled() -> None:
    stage = Stage(on_message_processed=print)
    stage.sdf.print().update(lambda value: value["missing"])
    report = run(stage.app, chunk(b'{"a":1}'))
    again = pickle.loads(cloudpickle.dumps(report))
    assert again.failure is not None
    assert str(again.failure.cause) == "'missing'"
    assert (again.ranges, again.shown) == (report.ranges, report.shown)
    column = pickle.loads(pickle.dumps(MissingColumnError("x", ("a",))))
    assert str(column) == "column 'x' is missing; the value has 'a'"


def test_a_source_describes_its_topic() -> None:
    assert SourceOperator(Topic("t")).describe() == "t"


# -- When offsets are committed --------------------------------------------------------------------------------------

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


@pytest.mark.parametrize(
    ("every", "records", "now", "due"),
    [
        (0, 1, 9.9, False),
        (0, 1, 10.0, True),
        (0, 1_000_000, 9.9, False),
        (100, 99, 0.0, False),
        (100, 100, 0.0, True),
        (100, 1, 10.0, True),
        (-1, 1_000, 0.0, False),
    ],
)
def test_a_commit_is_due_after_an_interval_or_a_number_of_records(
    every: int, records: int, now: float, due: bool
) -> None:
    schedule = CommitSchedule(10.0, every)
    schedule.start({A: 5}, 0.0)
    schedule.processed({A: 6}, records)
    assert schedule.due(now) is due


def test_without_progress_nothing_is_due_or_pending() -> None:
    schedule = CommitSchedule(10.0, 1)
    schedule.start({A: 5, B: 0}, 0.0)
    schedule.processed({A: 5}, 100)
    assert (schedule.pending(), schedule.due(100.0)) == ({}, False)
    assert [schedule.quiet(now) for now in (9.9, 10.0)] == [False, True]


def test_only_the_partitions_that_moved_are_committed() -> None:
    schedule = CommitSchedule(10.0, 0)
    schedule.start({A: 5, B: 0}, 0.0)
    schedule.processed({A: 7}, 2)
    schedule.processed({A: 6, B: 0}, 1)
    assert schedule.pending() == {A: 7}
    assert not schedule.quiet(10.0)


def test_a_commit_begins_interval_and_count_anew() -> None:
    schedule = CommitSchedule(10.0, 3)
    schedule.start({A: 0}, 0.0)
    schedule.processed({A: 3}, 3)
    schedule.committed(schedule.pending(), 4.0)
    assert schedule.pending() == {}
    schedule.processed({A: 5}, 2)
    assert [schedule.due(now) for now in (4.0, 13.9, 14.0)] == [False, False, True]
    schedule.processed({A: 6}, 1)
    assert schedule.due(4.0)


def test_progress_during_a_commit_stays_pending() -> None:
    schedule = CommitSchedule(10.0, 0)
    schedule.start({A: 0}, 0.0)
    schedule.processed({A: 3}, 3)
    offsets = schedule.pending()
    schedule.processed({A: 5, B: 2}, 4)
    schedule.committed(offsets, 1.0)
    assert schedule.pending() == {A: 5, B: 2}


def test_a_new_assignment_forgets_the_old_one() -> None:
    schedule = CommitSchedule(10.0, 1)
    schedule.start({A: 0}, 0.0)
    schedule.processed({A: 3}, 3)
    schedule.start({B: 7}, 5.0)
    assert (schedule.pending(), schedule.due(100.0)) == ({}, False)
    schedule.processed({B: 8}, 0)
    assert not schedule.due(14.9)
    assert schedule.due(15.0)


def test_a_partition_without_a_committed_offset_is_committed_once_it_moves() -> None:
    schedule = CommitSchedule(10.0, 0)
    schedule.start({}, 0.0)
    schedule.processed({A: 0}, 0)
    assert schedule.pending() == {A: 0}


def test_measured_time_is_that_of_the_batch() -> None:
    stage = Stage()
    begun = time.monotonic()
    report = run(stage.app, numbers(1))
    assert 0 < report.seconds <= time.monotonic() - begun
