"""Reading and setting offsets of partitions and consumer groups without a consumer."""

import contextlib
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import Literal

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from streamrt.kafka.client import (
    KafkaRequestError,
    OffsetMetadata,
    build_client,
    error_in,
    partition_offsets,
    request_error,
)
from streamrt.kafka.committed import CommittedOffset, GroupOffsets
from streamrt.kafka.requests import AdminRequests, retry, seconds_left
from streamrt.records import TopicPartition

__all__ = ["CommittedOffset", "IsolationLevelName", "OffsetRequests"]

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


class OffsetRequests(AdminRequests):
    """Requests that read and set offsets."""

    def offset_bounds(
        self,
        partitions: Collection[TopicPartition],
        timeout: float = 30,
        *,
        isolation_level: IsolationLevelName = "read_uncommitted",
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end offset of partitions.

        Args:
            partitions: the partitions to look up.
            timeout: seconds to wait for the answers; above 0.
            isolation_level: "read_uncommitted" ends after the last record; a restore must reach this offset, and a
                committed offset may lie there. "read_committed" ends at the last stable offset, which an open
                transaction holds back; only records below it can be read now.

        Returns:
            `(low, high)` for each partition; `high` is the offset after the last record.

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
                self._client.list_offsets(dict.fromkeys(entries, spec()), **options)
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

    def committed(
        self,
        group: str,
        partitions: Collection[TopicPartition],
        require_stable: bool = True,
        timeout: float = 30,
    ) -> dict[TopicPartition, int | None]:
        """Return the committed offsets of a consumer group.

        Args:
            group: name of the group.
            partitions: the partitions to look up.
            require_stable: whether to wait while a transaction has a pending offset commit. Otherwise the previous
                offset is returned, from which no reader may start.
            timeout: seconds to wait for the answers; above 0.

        Returns:
            For each partition the next offset to read, or None if no offset is committed.

        Raises:
            KafkaRequestError: if the offsets could not be read in time.
        """
        found = self._groups.read(group, partitions, require_stable, time.monotonic() + timeout)
        return {place: entry.offset for place, entry in found.items()}

    def committed_stable(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a consumer group, after all transactions that may change them have ended.

        Args:
            group: name of the group.
            partitions: the partitions to look up.
            timeout: seconds to wait, including the wait for such transactions; above 0.

        Raises:
            KafkaRequestError: if the offsets could not be read in time; its `code` is
                `KafkaError.UNSTABLE_OFFSET_COMMIT` if a transaction is still open.
        """
        return self._groups.read(group, partitions, True, time.monotonic() + timeout)

    def committed_now(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a consumer group, without waiting for transactions that may change them.

        No reader may start from these offsets.

        Args:
            group: name of the group.
            partitions: the partitions to look up.
            timeout: seconds to wait for the answer; above 0.

        Raises:
            KafkaRequestError: if the offsets could not be read in time.
        """
        return self._groups.read(group, partitions, False, time.monotonic() + timeout)

    def set_committed(self, group: str, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None) -> None:
        """Commit offsets of a group that has no members.

        Args:
            group: name of the group.
            offsets: the next offset to read of each partition.
            metadata: text to store with each offset, or one for each partition.

        Raises:
            KafkaRequestError: if the offsets are refused, for example because the group has members.
        """
        if not offsets:
            return
        client = build_client(
            ConfluentConsumer,
            {**self._options, "error_cb": self._log_error, "group.id": group, "enable.auto.commit": False},
        )
        try:
            entries = client.commit(offsets=partition_offsets(offsets, metadata), asynchronous=False) or []
            error = next((entry.error for entry in entries if entry.error is not None), None)
        except KafkaException as raised:
            error = error_in(raised)
        finally:
            client.close()
        if error is not None:
            raise request_error(f"the offsets of group {group} could not be set", error)

    def bounds(self, partition: TopicPartition, timeout: float = 30) -> tuple[int, int]:
        """Return the first offset and the high watermark of a partition, regardless of open transactions.

        Args:
            partition: the partition to look up.
            timeout: seconds to wait for the answers; above 0.

        Raises:
            KafkaRequestError: if the partition does not exist or the answers did not arrive in time.
        """
        return self.offset_bounds([partition], timeout)[partition]

    def delete_records(self, offsets: Mapping[TopicPartition, int], timeout: float = 30) -> None:
        """Delete the records below offsets. Records that are already deleted, and offsets above the end, are ignored.

        Args:
            offsets: for each partition the first offset to keep.
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if records could not be deleted; the message lists all affected partitions.
        """
        if not offsets:
            return
        futures = self._client.delete_records(
            partition_offsets(offsets), request_timeout=timeout, operation_timeout=timeout
        )
        deadline = time.monotonic() + timeout + 1
        failures: list[KafkaRequestError] = []
        for entry, future in futures.items():
            _, error = self._settle(future, seconds_left(deadline))
            if error is not None and error.code() != KafkaError.OFFSET_OUT_OF_RANGE:
                place = TopicPartition(entry.topic, entry.partition)
                failures.append(request_error(f"records of {place} could not be deleted", error))
        if failures:
            retriable = all(failure.retriable for failure in failures)
            raise KafkaRequestError("; ".join(map(str, failures)), failures[0].code, retriable)

    def close(self) -> None:
        """Close the connections. In-flight requests may fail; a later request connects again.

        Without this call, the connections stay open until this object is deleted.
        """
        self._groups.close()
        self._renew_client()

    @cached_property
    def _groups(self) -> GroupOffsets:
        # The admin client's callback cannot be used here, because it refers to this object.
        return GroupOffsets({**self._options, "error_cb": self._log_error})

    def _offset(self, answer: "Future[ListOffsetsResultInfo]", deadline: float) -> int:
        """Return the offset in a broker's answer."""
        offset: int = self._wait(answer, seconds_left(deadline)).offset
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
        counts = {name: len(found.partitions) for name, found in self._descriptions(topics, deadline).items()}
        exist = all(partition.partition < counts.get(partition.topic, 0) for partition in partitions)
        if exist:
            for topic in topics:
                with contextlib.suppress(KafkaException):
                    self._client.list_topics(topic, timeout=seconds_left(deadline))
        return exist


def _confluent(partition: TopicPartition) -> ConfluentTopicPartition:
    return ConfluentTopicPartition(partition.topic, partition.partition)
