"""Copies of the records of partitions: what savepoints are made of, and what is made of savepoints."""

import time
from collections import Counter
from collections.abc import Iterator
from types import TracebackType

from typing_extensions import Self

from streamrt.errors import SavepointError
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.kafka.reading.stored import StoredReader, StoredRecord
from streamrt.kafka.writing.record_writer import KafkaRecordWriter
from streamrt.records import Headers, TopicPartition
from streamrt.records.headers import EPOCH_HEADER
from streamrt.state.changelog import POSITION_KEY, Position

__all__ = ["Copies", "StoredChanges"]


class StoredChanges:
    """Reads a changelog partition, or a copy of one: the changes, and then the last position.

    Records of writers that had lost the partition are left out, as a restore does.

    Args:
        records: the records.

    Attributes:
        position: the last position; None before the end, or if there is none.
    """

    def __init__(self, records: Iterator[StoredRecord]) -> None:
        self._records = records
        self.position: Position | None = None

    def __iter__(self) -> Iterator[StoredRecord]:
        newest: bytes | None = None
        for record in self._records:
            epoch = dict(record.headers).get(EPOCH_HEADER)
            if isinstance(epoch, bytes):
                if newest is not None and epoch < newest:
                    continue
                newest = epoch
            if record.key != POSITION_KEY:
                yield record
            elif record.value is not None:
                self.position = Position.decode(record.value)


class Copies:
    """Reads and writes records of partitions. Use it in a `with` block.

    Args:
        admin: finds the ends of partitions.
        connection: connection to the brokers.
        timeout: seconds to wait for a response, and for progress of a read.
    """

    def __init__(self, admin: TopicAdmin, connection: ConnectionConfig, timeout: float) -> None:
        self._admin = admin
        self._timeout = timeout
        self._reader = StoredReader(connection)
        self._writer = KafkaRecordWriter(connection)
        self._written: Counter[TopicPartition] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._reader.close()
        self._writer.close()

    def read(self, partition: TopicPartition, start: int = 0, end: int | None = None) -> Iterator[StoredRecord]:
        """Yield the committed records of a partition.

        Args:
            partition: the partition.
            start: first offset; earlier ones than the first one of the partition are passed over.
            end: offset after the last one; None for the high watermark.

        Raises:
            KafkaRequestError: if records cannot be read.
        """
        low, high = self._admin.bounds(partition, timeout=self._timeout)
        yield from self._reader.read(partition, max(low, start), high if end is None else end, timeout_s=self._timeout)

    def changes(self, partition: TopicPartition, end: int | None = None) -> StoredChanges:
        """Return the changes in a changelog partition, or in a copy of one."""
        return StoredChanges(self.read(partition, 0, end))

    def write(self, partition: TopicPartition, record: StoredRecord, headers: Headers | None = None) -> None:
        """Write key, value and timestamp of a record to a partition.

        Args:
            partition: the target.
            record: the record.
            headers: other headers than those of the record.
        """
        self._writer.produce(partition.topic, record.value, record.key, record.timestamp, headers, partition.partition)
        self._written[partition] += 1

    def write_pair(self, partition: TopicPartition, key: bytes, value: bytes, headers: Headers | None = None) -> None:
        """Write a record with the current time to a partition."""
        self._writer.produce(partition.topic, value, key, time.time_ns() // 1_000_000, headers, partition.partition)
        self._written[partition] += 1

    def is_alone(self, topic: str, partitions: int) -> bool:
        """Return whether a new topic has what was written here, and nothing else: another process may copy to it as well."""
        places = [TopicPartition(topic, number) for number in range(partitions)]
        bounds = self._admin.offset_bounds(places, timeout=self._timeout)
        return all(bounds[place] == (0, self._written[place]) for place in places)

    def flush(self) -> None:
        """Wait until all records are written.

        Raises:
            SavepointError: if one was not.
        """
        errors = self._writer.flush()
        if errors:
            raise SavepointError(f"records were not copied: {errors[0]}; run the command again")
