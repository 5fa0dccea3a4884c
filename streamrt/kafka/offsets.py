"""The first and the end offsets of partitions, and the deletion of records."""

import contextlib
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Literal

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from streamrt.kafka.client import KafkaRequestError, error_in, partition_offsets, request_error
from streamrt.kafka.requests import AdminRequests, retry, seconds_left
from streamrt.records import TopicPartition

__all__ = ["IsolationLevelName", "PartitionOffsets"]

IsolationLevelName = Literal["read_committed", "read_uncommitted"]
"""End of a partition: its last stable offset, before any open transaction; or the offset after its last record."""

_ISOLATION = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}
# Errors while the leader of a partition is not the one that the client knows, was re-elected, is being elected, or does
# not know yet that it is the leader.
_MOVED = frozenset(
    {
        KafkaError._NOENT,
        # The client's metadata may be older than the partition.
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)


class PartitionOffsets:
    """Read the first and the end offsets of partitions, and delete records.

    Args:
        requests: the admin client.
    """

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    def bounds(
        self, partitions: Collection[TopicPartition], timeout: float, isolation_level: IsolationLevelName
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end offset of partitions.

        Raises:
            KafkaRequestError: if a partition does not exist or the answers did not arrive in time.
        """
        deadline = time.monotonic() + timeout
        entries = {_confluent(partition): partition for partition in partitions}
        if not entries:
            return {}

        def ask() -> dict[TopicPartition, tuple[int, int]]:
            options = {
                "isolation_level": _ISOLATION[isolation_level],
                "request_timeout": seconds_left(deadline),
            }
            # Send both requests before waiting for the first answer.
            low, high = (
                self._requests.client.list_offsets(dict.fromkeys(entries, spec()), **options)
                for spec in (OffsetSpec.earliest, OffsetSpec.latest)
            )
            try:
                return {
                    partition: (self._offset(low[entry], deadline), self._offset(high[entry], deadline))
                    for entry, partition in entries.items()
                }
            except KafkaException as error:
                reason = error_in(error)
                if reason.code() in _MOVED and self._exist(partitions, deadline):
                    raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, reason.str())) from None
                raise

        return retry("the start and end offsets could not be read", ask, deadline)

    def delete_records(self, offsets: Mapping[TopicPartition, int], timeout: float) -> None:
        """Delete the records below offsets. Records that are already deleted, and offsets above the end, are ignored.

        Raises:
            KafkaRequestError: if records could not be deleted; the message lists all affected partitions.
        """
        if not offsets:
            return
        futures = self._requests.client.delete_records(
            partition_offsets(offsets), request_timeout=timeout, operation_timeout=timeout
        )
        deadline = time.monotonic() + timeout + 1
        failures: list[KafkaRequestError] = []
        for entry, future in futures.items():
            _, error = self._requests.settle(future, seconds_left(deadline))
            if error is not None and error.code() != KafkaError.OFFSET_OUT_OF_RANGE:
                partition = TopicPartition(entry.topic, entry.partition)
                failures.append(request_error(f"records of {partition} could not be deleted", error))
        if failures:
            retriable = all(failure.retriable for failure in failures)
            raise KafkaRequestError("; ".join(map(str, failures)), failures[0].code, retriable)

    def _offset(self, answer: "Future[ListOffsetsResultInfo]", deadline: float) -> int:
        """Return the offset in a broker's answer."""
        offset: int = self._requests.wait(answer, seconds_left(deadline)).offset
        if offset < 0:
            # If the broker goes away during the request, librdkafka 2.16 returns this as the answer instead of an
            # error.
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the broker went away before it answered"))
        return offset

    def _exist(self, partitions: Collection[TopicPartition], deadline: float) -> bool:
        """Return whether all partitions exist, and refresh their leaders.

        librdkafka does not refresh them automatically when a former leader refuses a request.

        Raises:
            KafkaException: if no broker answers.
        """
        topics = {partition.topic for partition in partitions}
        counts = {
            name: len(found.partitions) for name, found in self._requests.describe_topics(topics, deadline).items()
        }
        exist = all(partition.partition < counts.get(partition.topic, 0) for partition in partitions)
        if exist:
            for topic in topics:
                with contextlib.suppress(KafkaException):
                    self._requests.client.list_topics(topic, timeout=seconds_left(deadline))
        return exist


def _confluent(partition: TopicPartition) -> ConfluentTopicPartition:
    return ConfluentTopicPartition(partition.topic, partition.partition)
