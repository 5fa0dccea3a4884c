"""Tasks and records that fail: who is asked, what is told, and where a range ends."""

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from streamrt import message_context
from streamrt.app import definition_of
from streamrt.errors import (
    ConsumerError,
    IgnoreMessage,
    KeyDeserializationError,
    MissingColumnError,
    ProcessingError,
    ProducerError,
    ValueDeserializationError,
    ValueSerializationError,
)
from streamrt.kafka import TopicConfig
from streamrt.models import OffsetRange, RawRecord, Record, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.report import Report
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.serializers import Deserializer, JSONSerializer, SerializationContext, Serializer
from tests.unit.apps import Stage
from tests.unit.tasks import PLACE, TASK, Writer, chunk, end, numbers, run, values

pytestmark = pytest.mark.usefixtures("processing_mode")

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
        "; skip such records with on_consumer_error, keep them with on_error, or set another deserializer for the topic"
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


@pytest.mark.rows("PF-C7", "PF-C15")
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
        f"apply-2 (divide) defined at test_task_errors.py:{line + 3} failed on in[3] at offset 8 "
        f"(test_task_errors.py:{line} in divide): ZeroDivisionError: division by zero"
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
    assert failure.message.startswith("assign-1 (x = (a + b)) defined at test_task_errors.py:")
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


def test_a17_a_skipped_record_puts_nothing_out_and_later_branches_do_not_run() -> None:
    stage = Stage(on_processing_error=lambda *_: True)
    later: list[int] = []
    first = stage.sdf.apply(lambda value: value)
    first.to_topic(stage.out)
    stage.sdf.apply(lambda value: 1 / value)
    stage.sdf.update(later.append)
    writer = Writer()
    report = run(stage.app, chunk(b"0", b"1"), writer=writer)
    assert writer.values == [b"1"]
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

    report = TaskExecutor(definition_of(stage.app).task_spec(collect=True), Writer()).run(feed(), BatchContext())
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


@pytest.mark.parametrize(
    ("written", "key", "cure"),
    [
        (
            "bytes",
            5,
            "the bytes serializer got a int; declare the topic with key_serializer='int' for keys of type int",
        ),
        (
            "str",
            0.5,
            "the string serializer got a float; declare the topic with key_serializer='double' for keys of",
        ),
        ("int", "a", "the int serializer got a str; declare the topic with key_serializer='str' for keys of type str"),
        (
            "int",
            2**40,
            f"{2**40} does not fit into 4 signed bytes; declare the topic with key_serializer='json' for keys",
        ),
        (
            "str",
            [1],
            "the string serializer got a list; declare the topic with key_serializer='json' for keys of type list",
        ),
        ("json", b"a", "declare the topic with key_serializer='bytes' for keys of type bytes"),
    ],
)
def test_a_key_of_another_type_names_the_operator_and_the_serializer_to_declare(
    written: str, key: Any, cure: str
) -> None:
    stage = Stage(out={"key_serializer": written})
    stage.sdf.to_topic(stage.out, key=lambda value: key)
    report = run(stage.app, chunk(b"1"))
    assert report.failure is not None
    message = report.failure.message
    assert message.startswith("the key of a record for topic 'out' cannot be serialized: ")
    assert cure in message
    assert "(to_topic-1 (out) defined at test_task_errors.py:" in message


def test_a_key_that_no_plain_serializer_takes_is_left_to_the_user() -> None:
    stage = Stage()
    stage.sdf.to_topic(stage.out, key=lambda value: object())
    report = run(stage.app, chunk(b"1"))
    assert report.failure is not None
    assert "declare the topic" not in report.failure.message


def test_a_key_that_a_grouping_cannot_write_names_its_arguments() -> None:
    stage = Stage({"config": TopicConfig(2, 1)})
    stage.sdf.group_by(lambda value: b"bytes", name="grouped").to_topic(stage.out)
    with pytest.raises(ProducerError, match=r"give group_by\(\) key_serializer='bytes' and key_deserializer='bytes'"):
        stage.drive().pipe("in", 1)


def test_a_record_that_the_writer_refuses_is_a_producer_error() -> None:
    stage = Stage()
    stage.sdf.to_topic(stage.out)
    report = run(stage.app, numbers(3), writer=Writer(refuse=b"1"))
    assert report.failure is not None
    assert report.failure.kind == "producer"
    assert re.fullmatch(
        r"topic 'out' does not take it \(to_topic-1 \(out\) defined at test_task_errors\.py:\d+, input in\[0\] at offset 1\)"
        "; skip such records with on_producer_error, or keep them with on_error",
        report.failure.message,
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
    assert (failure.kind, failure.partition, failure.offset) == ("producer", TASK, None)
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


def test_a_state_that_is_missed_deep_in_a_function_names_the_cure() -> None:
    def add_up(value: Any, state: Any) -> Any:
        return value

    stage = Stage()
    stage.sdf.apply(lambda *args: add_up(*args))
    report = run(stage.app, chunk(b"1"))
    assert report.failure is not None
    assert report.failure.message.endswith(
        "; pass stateful=True to the operator if 'state' is to be the State of the record's key"
    )
