"""The pairs of keys and values in a partition of a compacted topic."""

import contextlib
import time
from collections.abc import Iterable

from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.cluster.admin import TopicAdmin
from streamrt.kafka.connection import ConnectionConfig
from streamrt.kafka.reading.stored import StoredReader
from streamrt.kafka.writing.record_writer import KafkaRecordWriter
from streamrt.records import TopicPartition

__all__ = ["read_pairs", "write_pairs"]

_QUICK = {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1, "linger.ms": 0}
"""An idempotent producer takes half a second to start. A retry may write the same pair twice, which changes nothing."""


def read_pairs(
    admin: TopicAdmin, connection: ConnectionConfig, partition: TopicPartition, timeout: float
) -> dict[bytes, bytes]:
    """Return the last committed value of each key; records without a key and deleted keys are left out.

    Args:
        admin: finds the end of the partition.
        connection: connection to the brokers.
        partition: the partition.
        timeout: seconds to wait for a response, and for progress.

    Raises:
        KafkaRequestError: if the partition cannot be read.
    """
    low, high = admin.bounds(partition, timeout=timeout)
    pairs: dict[bytes, bytes] = {}
    with contextlib.closing(StoredReader(connection)) as reader:
        for record in reader.read(partition, low, high, timeout_s=timeout):
            if record.key is None:
                continue
            if record.value is None:
                pairs.pop(record.key, None)
            else:
                pairs[record.key] = record.value
    return pairs


def write_pairs(
    connection: ConnectionConfig, partition: TopicPartition, pairs: Iterable[tuple[bytes, bytes | None]]
) -> None:
    """Write pairs, and wait until they are durable.

    Args:
        connection: connection to the brokers.
        partition: the partition.
        pairs: keys and values; None deletes a key.

    Raises:
        KafkaRequestError: if one is not written.
    """
    with contextlib.closing(KafkaRecordWriter(connection, _QUICK)) as writer:
        for key, value in pairs:
            writer.produce(partition.topic, value, key, time.time_ns() // 1_000_000, None, partition.partition)
        errors = writer.flush()
    if errors:
        raise KafkaRequestError(f"{partition} could not be written: {errors[0]}")
