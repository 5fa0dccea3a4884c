"""The log in which coordinators keep the committed offsets of consumer groups, the topic `__consumer_offsets`."""

import struct
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentTopicPartition

from streamrt.kafka.client import KafkaRequestError, build_client, is_retriable, request_error
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.records import TopicPartition

__all__ = ["offsets_partition", "parse_offset", "parse_partition", "read_offsets_log"]

_OPTIONS = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    # The end of the log costs this time.
    "fetch.wait.max.ms": 5,
}
_BATCH = 10_000
_POLL_S = 0.2
_NEWEST_VALUE = 4


def offsets_partition(group: str, count: int) -> int:
    """Return the partition of `__consumer_offsets` that has the offsets of a group.

    Args:
        group: name of the group.
        count: number of partitions of that topic.

    Example:
        >>> offsets_partition("orders", 50)
        31
    """
    text = group.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(text[::2], text[1::2], strict=True):
        # Java's hash of strings.
        code = (31 * code + 256 * high + low) & 0xFFFFFFFF
    # Kafka takes the absolute value of a negative number, and 0 for the one that has none.
    return (code if code < 0x80000000 else -code & 0x7FFFFFFF) % count


def read_offsets_log(
    options: Mapping[str, Any], log: TopicPartition, group: str, end: int, deadline: float
) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets of a group by their log, whatever its coordinator says.

    Offsets of open and aborted transactions do not count.

    Args:
        options: connection options, named as in librdkafka.
        log: the partition with the offsets of the group; see `offsets_partition`.
        group: name of the group.
        end: offset of the log up to which it is read at least.
        deadline: value of `time.monotonic()`.

    Raises:
        KafkaRequestError: if the log cannot be read, or not in time, or has a format that is not known.
    """
    found: dict[TopicPartition, CommittedOffset] = {}
    client = build_client(ConfluentConsumer, {**options, **_OPTIONS, "group.id": group})
    try:
        client.assign([ConfluentTopicPartition(log.topic, log.partition, OFFSET_BEGINNING)])
        while time.monotonic() < deadline:
            for message in client.consume(_BATCH, _POLL_S):
                error = message.error()
                if error is None:
                    partition = parse_partition(message.key() or b"", group)
                    if partition is not None:
                        found[partition] = parse_offset(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    if message.offset() >= end:
                        return found
                elif not is_retriable(error):
                    raise KafkaException(error)
    except KafkaException as error:
        raise request_error(f"the log {log} with the offsets of group {group} could not be read", error) from error
    finally:
        client.close()
    raise KafkaRequestError(f"the log {log} with the offsets of group {group} was not read up to {end} in time")


def parse_partition(key: bytes, group: str) -> TopicPartition | None:
    """Return the partition that a record of the log is about; None if it is not about an offset of a group.

    Args:
        key: key of the record, by Kafka's schema `OffsetCommitKey`.
        group: name of the group.

    Example:
        >>> parse_partition(bytes.fromhex("0001 0002 6162 0001 74 00000007"), "ab")
        TopicPartition(topic='t', partition=7)
    """
    name = group.encode("utf-8", "surrogatepass")
    begin = struct.pack(">h", len(name)) + name
    # Other versions are keys of members and metadata of groups.
    if key[:2] not in (b"\0\0", b"\0\1") or not key.startswith(begin, 2):
        return None
    at = 2 + len(begin)
    (size,) = struct.unpack_from(">h", key, at)
    (partition,) = struct.unpack_from(">i", key, at + 2 + size)
    return TopicPartition(key[at + 2 : at + 2 + size].decode(), partition)


def parse_offset(value: bytes | None) -> CommittedOffset:
    """Return the committed offset that a record of the log has.

    Args:
        value: value of the record, by Kafka's schema `OffsetCommitValue`; None for an offset that was deleted.

    Raises:
        KafkaRequestError: if its version is not known.

    Example:
        >>> parse_offset(bytes.fromhex("0003 0000000000000005 ffffffff 0001 6d 0000000000000000"))
        CommittedOffset(offset=5, metadata='m')
        >>> parse_offset(None)
        CommittedOffset(offset=None, metadata='')
    """
    if value is None:
        return CommittedOffset(None)
    version, offset = struct.unpack_from(">hq", value)
    if version > _NEWEST_VALUE:
        raise KafkaRequestError(f"the log of committed offsets has version {version} of a format that is not known")
    # Since version 3, the epoch of a leader lies in between.
    at = 14 if version >= 3 else 10
    if version >= _NEWEST_VALUE:
        size, at = _read_length(value, at)
    else:
        (size,) = struct.unpack_from(">h", value, at)
        at += 2
    # confluent-kafka stores a zero byte behind a text, and reads up to it.
    return CommittedOffset(offset, value[at : at + size].split(b"\0", 1)[0].decode())


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of a compact string, which is stored as a varint of one more, and where the string begins."""
    length = shift = 0
    while True:
        length |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return length - 1, at
