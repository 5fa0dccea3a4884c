"""`TopologyTestDriver`: what it feeds, what it keeps, and that its clock moves by hand only."""

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamrt import Application, Topic, message_context
from streamrt.connectors import BatchingSink, ListSink, SinkBatch
from streamrt.errors import (
    ConsumerError,
    InvalidOperationError,
    ProcessingError,
    ProducerError,
    SerializationError,
    SinkBackpressureError,
    SinkError,
    UnpicklableOperatorError,
)
from streamrt.kafka import TopicConfig
from streamrt.kafka.partitioner import partition_for
from streamrt.models import RawRecord, TimestampType
from streamrt.state import State
from streamrt.state.changelog import POSITION_KEY, Position
from streamrt.testing import InputRecord, TestRecord, TopologyTestDriver
from tests.unit.apps import START, Stage, application

pytestmark = pytest.mark.usefixtures("processing_mode")

MakeDriver = Callable[[Application], TopologyTestDriver]


@pytest.fixture
def stage() -> Stage:
    """An application that sends everything from `in` to `out`."""
    passing = Stage()
    passing.sdf.to_topic(passing.out)
    return passing


def remember(value: Any, state: State) -> Any:
    """Keep the last value and its bytes."""
    state.set("last", value)
    state.set_bytes("raw", repr(value).encode())
    return value


def add_one(value: Any, state: State) -> int:
    """Count."""
    number: int = state.get("n", 0) + 1
    state.set("n", number)
    return number


# -- Records in and out ----------------------------------------------------------------------------------------------


def test_records_are_read_once_and_in_order(stage: Stage) -> None:
    driver = stage.drive()
    assert driver.read("out") == []
    driver.pipe("in", 1)
    driver.pipe(stage.source, 2)
    assert [record.value for record in driver.read("out")] == [1, 2]
    driver.pipe("in", 3)
    assert [record.value for record in driver.read(stage.out)] == [3]
    assert driver.read("out") == []


def test_a_read_record_has_values_and_bytes() -> None:
    stage = Stage(
        {"key_serializer": "int", "key_deserializer": "int", "value_serializer": "str", "value_deserializer": "str"},
        {"key_serializer": "double", "key_deserializer": "double"},
    )
    stage.sdf.apply(lambda value: {"text": value}).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", "hello", key=7, timestamp=5, headers=[("h", b"\xff")])
    assert driver.read("out") == [
        TestRecord(
            key=7.0,
            value={"text": "hello"},
            timestamp=5,
            headers=[("h", b"\xff")],
            raw_key=b"\x40\x1c\0\0\0\0\0\0",
            raw_value=b'{"text":"hello"}',
        )
    ]


def test_outputs_are_what_left_the_branches_since_the_last_call(stage: Stage) -> None:
    stage.sdf.apply(lambda value: [value, value], expand=True)
    stage.sdf.apply(lambda value: -value)
    driver = stage.drive()
    driver.pipe("in", 1, key="k", timestamp=7)
    assert driver.outputs() == [(1, b"k", 7, None), (1, b"k", 7, None), (-1, b"k", 7, None)]
    assert driver.outputs() == []


def test_none_is_piped_as_a_tombstone_or_as_no_key_whatever_the_serializer() -> None:
    stage = Stage({"key_serializer": "json", "key_deserializer": "json"})
    stage.sdf.apply(lambda *record: record, metadata=True)
    assert stage.values(None, timestamp=7) == [(None, None, 7, None)]


def test_empty_bytes_are_no_tombstone() -> None:
    stage = Stage({"value_deserializer": "bytes"})
    stage.sdf.apply(lambda *record: record[:2], metadata=True)
    driver = stage.drive()
    driver.pipe_bytes("in", b"", key=b"")
    driver.pipe_bytes("in", None)
    assert [output[0] for output in driver.outputs()] == [(b"", b""), (None, None)]


@pytest.mark.parametrize("headers", [None, []])
def test_without_headers_functions_get_none(stage: Stage, headers: Any) -> None:
    stage.sdf.apply(lambda value, key, timestamp, headers: headers, metadata=True)
    driver = stage.drive()
    driver.pipe("in", 1, headers=headers)
    assert driver.outputs()[0][0] is None
    assert driver.read("out")[0].headers is None


def test_a_value_that_the_input_topic_cannot_serialize_is_an_error_of_the_test(stage: Stage) -> None:
    driver = stage.drive()
    with pytest.raises(SerializationError, match="the value has no JSON form"):
        driver.pipe("in", {1})
    with pytest.raises(SerializationError, match="the bytes serializer got a int"):
        driver.pipe("in", 1, key=5)
    # Nothing was sent.
    stage.sdf.apply(lambda value: message_context().offset)
    assert stage.values(1) == [0]


# -- Offsets, partitions, context ------------------------------------------------------------------------------------


def test_each_partition_counts_its_own_offsets() -> None:
    app = application()
    for name in ("in", "second"):
        sdf = app.dataframe(app.topic(name))
        sdf.apply(lambda value: (message_context().topic, message_context().partition, message_context().offset))
    driver = TopologyTestDriver(app)
    for topic, partition in (("in", 0), ("in", 3), ("in", 0), ("second", 0), ("in", 3)):
        driver.pipe(topic, 1, partition=partition)
    assert [output[0] for output in driver.outputs()] == [
        ("in", 0, 0),
        ("in", 3, 0),
        ("in", 0, 1),
        ("second", 0, 0),
        ("in", 3, 1),
    ]


@pytest.mark.usefixtures("processing_mode")
def test_records_with_keys_are_where_producers_would_put_them() -> None:
    app = application()
    config = TopicConfig(4, 1)
    users, clicks = (
        app.topic(name, key_serializer="str", key_deserializer="str", config=config) for name in ("u", "c")
    )
    by_user = app.dataframe(clicks).group_by("user", key_serializer="str", key_deserializer="str")
    by_user.join(app.table(users))
    app.dataframe(users).apply(lambda user, state: state.set("name", user["name"]), stateful=True)
    names = [f"user-{number}" for number in range(20)]
    with TopologyTestDriver(app) as driver:
        for name in names[:10]:
            driver.pipe(users, {"name": name}, key=name)
        driver.pipe_many(InputRecord(users, {"name": name}, name) for name in names[10:15])
        for name in names[15:]:
            driver.pipe_all(users, [{"name": name}], key=name)
        for name in names:
            driver.pipe(clicks, {"user": name})
            assert driver.state(users, name).get("name") == name
        assert {value["name"] for value, *_ in driver.outputs() if value and "user" in value} == set(names)
        used = {place.partition for place, end in driver.checkpoint().offsets.items() if place.topic == "u" and end}
        assert used == {partition_for(name.encode(), 4) for name in names} == {0, 1, 2, 3}


def test_the_context_is_that_of_a_record_with_a_create_time() -> None:
    stage = Stage({"key_deserializer": "str"})
    stage.sdf.apply(lambda value: message_context())
    ((context, *_),) = stage.outputs("word", key="k", timestamp=7, headers=[("h", None)])
    assert (context.key, context.size, context.headers) == ("k", 7, [("h", None)])
    assert (context.timestamp.milliseconds, context.timestamp.type) == (7, TimestampType.TIMESTAMP_CREATE_TIME)


def test_processed_offsets_are_told_to_the_callback_of_the_application() -> None:
    seen: list[tuple[str, int, int]] = []
    stage = Stage(on_message_processed=lambda *place: seen.append(place), on_processing_error=lambda *_: True)
    stage.sdf.update(lambda value: 1 / value)
    driver = stage.drive()
    for value in (1, 0, 2):
        driver.pipe("in", value, partition=2)
    assert seen == [("in", 2, 0), ("in", 2, 2)]


# -- Time ------------------------------------------------------------------------------------------------------------


def test_the_clock_stands_still_unless_it_is_moved(stage: Stage) -> None:
    driver = stage.drive()
    assert driver.now == START
    driver.pipe("in", 1)
    driver.advance(5)
    driver.pipe("in", 2)
    driver.advance(timedelta(seconds=1, milliseconds=1))
    driver.pipe("in", 3)
    driver.pipe("in", 4, timestamp=7)
    assert [record.timestamp for record in driver.read("out")] == [START, START + 5, START + 1006, 7]
    assert driver.now == START + 1006


@pytest.mark.parametrize("milliseconds", [0, 1, 9, 1001, 4_097, 86_400_001, 123_456_789_001])
def test_a_timedelta_moves_the_clock_by_exactly_its_milliseconds(stage: Stage, milliseconds: int) -> None:
    driver = stage.drive()
    driver.advance(timedelta(milliseconds=milliseconds))
    assert driver.now == START + milliseconds


@pytest.mark.parametrize("step", [-1, timedelta(milliseconds=-1), timedelta(days=-1)])
def test_the_clock_cannot_go_back(stage: Stage, step: Any) -> None:
    driver = stage.drive()
    with pytest.raises(InvalidOperationError, match="must be 0 ms or more"):
        driver.advance(step)
    assert driver.now == START


# -- Errors ----------------------------------------------------------------------------------------------------------


def test_undecodable_bytes_are_a_consumer_error_with_its_cause(stage: Stage) -> None:
    driver = stage.drive()
    with pytest.raises(ConsumerError, match=r"the value of in\[1\] at offset 0 cannot be deserialized") as caught:
        driver.pipe_bytes("in", b"{", partition=1)
    assert isinstance(caught.value.__cause__, SerializationError)


def test_undecodable_bytes_can_be_skipped() -> None:
    seen: list[Any] = []

    def skip(error: Exception, record: RawRecord, logger: logging.Logger) -> bool:
        seen.append(record.value())
        return True

    stage = Stage(on_consumer_error=skip)
    stage.sdf.apply(lambda value: value)
    driver = stage.drive()
    driver.pipe_bytes("in", b"\xff", key=b"k")
    driver.pipe_bytes("in", b"1")
    assert seen == [b"\xff"]
    assert [output[0] for output in driver.outputs()] == [1]


def test_errors_of_operators_and_of_outputs_are_raised_with_their_cause() -> None:
    stage = Stage()
    stage.sdf.update(lambda value: 1 / value).apply(lambda value: {value}).to_topic(stage.out)
    driver = stage.drive()
    with pytest.raises(ProcessingError, match="ZeroDivisionError") as processing:
        driver.pipe("in", 0)
    assert isinstance(processing.value.__cause__, ZeroDivisionError)
    with pytest.raises(ProducerError, match="the value of a record for topic 'out' cannot be serialized"):
        driver.pipe("in", 1)


def test_after_an_error_the_driver_goes_on_with_the_next_offset() -> None:
    stage = Stage()
    stage.sdf.update(lambda value: 1 / value).apply(lambda value: message_context().offset)
    driver = stage.drive()
    with pytest.raises(ProcessingError):
        driver.pipe("in", 0)
    driver.pipe("in", 1)
    assert [output[0] for output in driver.outputs()] == [1]


def test_an_operator_that_could_not_be_sent_to_spark_is_refused_here_too() -> None:
    lock = threading.Lock()
    stage = Stage()
    stage.sdf.update(lambda value: lock.locked())
    with pytest.raises(UnpicklableOperatorError, match="operator update-1"):
        stage.drive()


def test_an_application_without_a_dataframe_cannot_be_driven() -> None:
    with pytest.raises(InvalidOperationError, match="there is nothing to test"):
        TopologyTestDriver(application())


def test_topics_that_nobody_reads_or_knows_are_named(stage: Stage) -> None:
    driver = stage.drive()
    with pytest.raises(InvalidOperationError, match="no dataframe reads topic 'out'; the application reads in"):
        driver.pipe("out", 1)
    for call in (lambda: driver.pipe("typo", 1), lambda: driver.read("typo")):
        with pytest.raises(InvalidOperationError, match="the application has no topic 'typo'"):
            call()
    with pytest.raises(InvalidOperationError, match="no dataframe reads topic 'typo'"):
        driver.pipe_bytes("typo", b"1")


# -- State -----------------------------------------------------------------------------------------------------------


def test_state_can_be_looked_at_while_records_come() -> None:
    stage = Stage({"key_serializer": "str", "key_deserializer": "str"})
    stage.sdf.apply(remember, stateful=True)
    driver = stage.drive()
    view = driver.state("in", "a")
    assert (view.get("last"), view.get("last", 0), view.exists("last"), view.get_bytes("raw", b"-")) == (
        *(None, 0, False, b"-"),
    )
    driver.pipe("in", 5, key="a")
    assert (view.get("last"), view.exists("last"), view.get_bytes("raw")) == (5, True, b"5")
    assert not driver.state(stage.source, "b").exists("last")
    driver.pipe("in", 6, key="a", partition=2)
    assert (view.get("last"), driver.state("in", "a", partition=2).get("last")) == (5, 6)


@pytest.mark.parametrize("changelogs", [True, False])
def test_changelogs_are_written_if_the_application_has_them(changelogs: bool) -> None:
    stage = Stage(use_changelog_topics=changelogs)
    stage.sdf.apply(add_one, stateful=True).to_topic(stage.out)
    driver = stage.drive()
    for value in range(3):
        driver.pipe("in", value, key=b"k")
    assert [record.value for record in driver.read("out")] == [1, 2, 3]
    # One change and one position for each record.
    written = driver._execution.clients.written("changelog__group--in--default")
    assert [record.key == POSITION_KEY for record in written] == ([False, True] * 3 if changelogs else [])
    assert not changelogs or Position.decode(written[-1].value or b"").input_offset == 3


def test_looking_at_state_moves_no_stream_time() -> None:
    stage = Stage()
    stage.sdf.update(lambda value, state: state.set("x", value, ttl=timedelta(seconds=1)), stateful=True)
    driver = stage.drive()
    driver.pipe("in", 5, key=b"a", timestamp=START)
    driver.advance(timedelta(hours=1))
    assert driver.state("in", b"a").get("x") == 5
    driver.pipe("in", 6, key=b"b", timestamp=START + 1_000)
    assert driver.state("in", b"a").get("x") is None


@pytest.mark.parametrize("partitions", [1, 2])
def test_the_name_of_a_store_may_be_short(partitions: int) -> None:
    stage = Stage({"config": TopicConfig(partitions, 1)})
    topics: list[Topic] = []
    for name in ("b", "a"):
        grouped = stage.sdf.group_by(lambda value: value, name=name)
        grouped.apply(remember, stateful=True)
        topics += grouped.topics
    stage.sdf.apply(remember, stateful=True)
    driver = stage.drive()
    driver.pipe("in", 7, key=b"k")
    assert driver.state("in", b"k").get("last") == 7
    assert driver.state("in", b"k", store="default").get("last") == 7
    assert driver.state(topics[0], 7).get("last") == driver.state(topics[0].name, 7, store="default.b").get("last") == 7
    assert driver.state(topics[1], 8).get("last") is None
    with pytest.raises(InvalidOperationError, match=r"has no store 'windows'; its stores: 'default\.b'"):
        driver.state(topics[0], 7, store="windows")


def test_a_short_name_of_several_stores_is_refused() -> None:
    stage = Stage()
    for name in ("b", "a"):
        stage.sdf.group_by(lambda value: value, name=name).apply(remember, stateful=True)
    with pytest.raises(
        InvalidOperationError, match=r"has several stores 'default'; its stores: 'default\.b', 'default\.a'"
    ):
        stage.drive().state("in", 7)


def test_state_that_does_not_exist_is_refused(stage: Stage) -> None:
    driver = stage.drive()
    with pytest.raises(
        InvalidOperationError, match="the dataframe of topic 'in' has no store 'default'; its stores: none"
    ):
        driver.state("in", b"k")
    with pytest.raises(InvalidOperationError, match="no dataframe reads topic 'out'; the application reads in"):
        driver.state("out", b"k")


# -- Sinks -----------------------------------------------------------------------------------------------------------


class Moody(BatchingSink):
    """Writes to a list of the test; raises first what it is told to."""

    def __init__(self, written: list[Any], moods: list[Exception]) -> None:
        super().__init__()
        self.written, self.moods = written, moods

    def write(self, batch: SinkBatch) -> None:
        if self.moods:
            raise self.moods.pop(0)
        self.written.extend((item.value, item.offset) for item in batch)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_sink_that_wants_no_records_gets_them_again_and_state_counts_them_once(guarantee: str) -> None:
    written: list[Any] = []
    stage = Stage(processing_guarantee=guarantee)
    sdf = stage.sdf.apply(add_one, stateful=True)
    sdf.to_topic(stage.out)
    sdf.sink(Moody(written, [SinkBackpressureError(30), OSError("no space")]))
    driver = stage.drive()
    with pytest.raises(SinkBackpressureError, match="retried after 30 s"):
        driver.pipe("in", "a", key=b"k")
    with pytest.raises(SinkError, match=r"the sink Moody failed on records of in\[0\]: OSError: no space"):
        driver.pipe("in", "a", key=b"k")
    assert driver.outputs() == []
    assert driver.state("in", b"k").get("n") is None
    driver.pipe("in", "b", key=b"k")
    assert [value for value, _ in written] == [1]
    assert driver.state("in", b"k").get("n") == 1


def test_a_list_sink_is_filled_while_the_test_runs() -> None:
    stage, results = Stage(), ListSink()
    stage.sdf.sink(results)
    with stage.drive() as driver:
        driver.pipe("in", 1)
        assert results == [1]
        driver.pipe("in", 2)
    assert results == [1, 2]


# -- Around the driver -----------------------------------------------------------------------------------------------


def test_the_fixture_makes_drivers(stage: Stage, topology_driver: MakeDriver) -> None:
    one, other = topology_driver(stage.app), topology_driver(stage.app)
    one.pipe("in", 1)
    assert [record.value for record in one.read("out")] == [1]
    assert other.read("out") == []


def test_closing_a_driver_prints_the_rest_of_its_tables(
    topology_driver: MakeDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage()
    stage.sdf.print_table(size=5, columns=["n"], metadata=False)
    driver = topology_driver(stage.app)
    driver.pipe("in", {"n": 12345})
    assert "12345" not in capsys.readouterr().out
    driver.close()
    assert "12345" in capsys.readouterr().out


def test_functions_run_in_this_process_and_may_fill_lists_of_the_test(stage: Stage) -> None:
    seen: list[int] = []
    stage.sdf.update(seen.append)
    driver = stage.drive()
    driver.pipe("in", 5)
    assert seen == [5]
