"""Topics outside of dataframes, topics that are declared twice, and headers."""

from typing import Any

import confluent_kafka
import pytest

from streamrt import MessageContext, Topic, TopicConfig
from streamrt.errors import SerializationError
from streamrt.models import RawRecord, Record, TimestampType
from streamrt.serializers import IntegerDeserializer
from streamrt.testing import TopologyTestDriver
from streamrt.topics import KafkaMessage
from tests.unit.apps import Stage, application

QUIX_HEADERS = [("__Q_ModelKey", b"TimeseriesData"), ("__Q_CodecId", b"JT")]


def message(value: bytes | None, key: bytes | None = b"k", headers: Any = None) -> RawRecord:
    return RawRecord("in", 2, 7, key, value, 1_000, TimestampType.TIMESTAMP_CREATE_TIME, headers)


# -- deserialize, row_deserialize, row_serialize ---------------------------------------------------------------------


def test_deserialize_takes_a_message_of_a_consumer() -> None:
    topic = Topic("in", key_deserializer="str")
    assert topic.deserialize(message(b'{"a":1}', headers=[("h", b"x")])) == KafkaMessage(
        "k", {"a": 1}, [("h", b"x")], 1_000
    )
    assert topic.deserialize(message(None, key=None)) == KafkaMessage(None, None, None, 1_000)
    assert topic.deserialize(b"k", b"1") == ("k", 1)


def test_messages_of_kafkas_client_have_what_deserialize_asks_for() -> None:
    names = ("topic", "partition", "offset", "key", "value", "timestamp", "headers", "leader_epoch")
    assert all(callable(getattr(confluent_kafka.Message, name)) for name in names)


@pytest.mark.parametrize("given", [None, b"bytes", {"value": 1}, 5])
def test_deserialize_refuses_what_is_no_message(given: Any) -> None:
    with pytest.raises(TypeError, match=r"a message with the methods of confluent_kafka\.Message"):
        Topic("in").deserialize(given)


def test_row_deserialize_gives_a_record_with_its_context() -> None:
    row = Topic("in", key_deserializer="str").row_deserialize(message(b'{"a":1}', headers=[("h", b"x")]))
    assert isinstance(row, Record)
    assert (row.value, row.key, row.timestamp, row.headers) == ({"a": 1}, "k", 1_000, [("h", b"x")])
    assert (row.topic, row.partition, row.offset, row.size) == ("in", 2, 7, 8)
    assert isinstance(row.context, MessageContext)


def test_row_deserialize_asks_the_timestamp_extractor() -> None:
    topic = Topic("in", timestamp_extractor=lambda value, headers, timestamp, kind: timestamp + value["a"] + kind)
    row = topic.row_deserialize(message(b'{"a":5}'))
    assert isinstance(row, Record)
    assert row.timestamp == 1_006


def test_row_deserialize_gives_several_records_or_none() -> None:
    topic = Topic("in", value_deserializer="quix")
    rows = topic.row_deserialize(
        message(b'{"Timestamps": [1, 2], "NumericValues": {"n": [3, 4]}}', headers=QUIX_HEADERS)
    )
    assert isinstance(rows, list)
    assert [row.value["n"] for row in rows] == [3, 4]
    assert (
        topic.row_deserialize(message(b"{}", headers=[("__Q_ModelKey", b"StreamEnd"), ("__Q_CodecId", b"JT")])) is None
    )
    with pytest.raises(SerializationError):
        Topic("in").row_deserialize(message(b"{"))


def test_row_serialize_takes_a_record_and_its_key() -> None:
    topic = Topic("in", key_deserializer="str", key_serializer="str")
    row = topic.row_deserialize(message(b'{"a":1}', headers=[("h", b"x")]))
    assert isinstance(row, Record)
    assert topic.row_serialize(row, "other") == KafkaMessage(b"other", b'{"a":1}', [("h", b"x")], 1_000)


# -- Declarations ----------------------------------------------------------------------------------------------------


def test_create_config_is_config() -> None:
    settings = TopicConfig(3, 1)
    topic = Topic("in", create_config=settings)
    assert (topic.config, topic.create_config) == (settings, settings)
    with pytest.raises(ValueError, match="both config and create_config"):
        Topic("in", settings, create_config=settings)


@pytest.mark.usefixtures("processing_mode")
def test_one_object_reads_a_topic_and_another_one_writes_it() -> None:
    app = application()
    numbers = app.topic("numbers", value_deserializer=IntegerDeserializer(), value_serializer="int")
    reading = app.topic("texts", value_deserializer="str", config=TopicConfig(2, 1))
    writing = app.topic("texts", value_serializer="str")
    app.dataframe(numbers).apply(str).to_topic(writing)
    app.dataframe(reading).apply(len)
    assert writing.config == TopicConfig(2, 1)
    with TopologyTestDriver(app) as driver:
        driver.pipe(numbers, 12)
        assert driver.read(reading)[0].value == "12"
        driver.pipe(writing, "four", partition=1)
        assert [output[0] for output in driver.outputs()] == ["12", 4]


# -- Headers ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("processing_mode")
def test_empty_headers_stay_empty_until_they_are_produced(stage: Stage) -> None:
    seen: list[Any] = []
    sdf = stage.sdf.set_headers(lambda *_: [])
    sdf.update(lambda value, key, timestamp, headers: seen.append(headers), metadata=True).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", 1, headers=[("h", b"x")])
    assert seen == [[]]
    assert driver.read("out")[0].headers is None


def test_test_passes_headers_on_as_they_are(stage: Stage) -> None:
    sdf = stage.sdf.apply(lambda value, key, timestamp, headers: headers, metadata=True)
    assert [sdf.test(1, headers=given)[0][0] for given in ([], None, [("h", b"")])] == [[], None, [("h", b"")]]
