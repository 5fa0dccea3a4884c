"""The records that go into a test driver, and those that come out."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from streamrt.records import Headers
from streamrt.serializers import MessageField
from streamrt.testing.memory import WrittenRecord
from streamrt.topics import Topic

__all__ = ["InputRecord", "TestRecord", "read_record"]


class InputRecord(NamedTuple):
    """A record for `TopologyTestDriver.pipe_many`, with the parameters of `pipe`.

    Attributes:
        topic: an input topic.
        value: the value, serialized by the topic's value serializer; None is a tombstone.
        key: the key, serialized by the topic's key serializer.
        timestamp: milliseconds since the Unix epoch; the driver's wall clock by default.
        headers: the headers.
        partition: partition of the record; None for that of its key, as producers choose it, and 0 without a key.

    Example:
        >>> InputRecord("orders", {"total": 10}, key="ann").headers is None
        True
    """

    topic: Topic | str
    value: Any = None
    key: Any = None
    timestamp: int | None = None
    headers: Headers | None = None
    partition: int | None = None


@dataclass(frozen=True)
class TestRecord:
    """A record in a topic of the test driver, deserialized with the topic's deserializers.

    Attributes:
        key: the key.
        value: the value.
        timestamp: milliseconds since the Unix epoch.
        headers: the headers, or None if there are none.
        raw_key: the key's bytes.
        raw_value: the value's bytes, or None for a tombstone.
        partition: the partition that a partitioner has chosen; -1 if the key determines it.
    """

    __test__ = False  # pytest must not collect the class as a test

    key: Any
    value: Any
    timestamp: int
    headers: Headers | None
    raw_key: bytes | None
    raw_value: bytes | None
    partition: int = -1


def read_record(topic: Topic, written: WrittenRecord) -> TestRecord:
    """Return a written record, deserialized with the deserializers of its topic."""
    load_value = topic.value_deserializer.bind(topic.name, MessageField.VALUE)
    load_key = topic.key_deserializer.bind(topic.name, MessageField.KEY)
    return TestRecord(
        key=None if written.key is None else load_key(written.key, written.headers),
        value=None if written.value is None else load_value(written.value, written.headers),
        timestamp=written.timestamp,
        headers=written.headers,
        raw_key=written.key,
        raw_value=written.value,
        partition=written.partition,
    )
