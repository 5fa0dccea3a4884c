"""Offsets of partitions and consumer groups, read and changed without being a consumer."""

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
from streamrt.models import TopicPartition

__all__ = ["CommittedOffset", "IsolationLevelName", "OffsetRequests"]

IsolationLevelName = Literal["read_committed", "read_uncommitted"]
"""Where a partition ends: before its first open transaction, or after its last record."""

_ISOLATION = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}
# The leader of a partition is another one than the client thinks, has been elected again, or is being elected, or it does not
# know yet that it is the leader.
_MOVED = frozenset(
    {
        KafkaError._NOENT,
        # What it knows may be older than the partition.
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
    """Asks for offsets, and sets them."""

    def watermarks(
        self,
        partitions: Collection[TopicPartition],
        timeout: float = 30,
        *,
        isolation_level: IsolationLevelName = "read_uncommitted",
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end offset of partitions.

        Args:
            partitions: which ones.
            timeout: seconds to wait for the answers; above 0.
            isolation_level: "read_uncommitted" ends after the last record: what a restore must reach, and
                where a committed offset may lie. "read_committed" ends at the last stable offset, which an
                open transaction holds back: what can be read now.

        Returns:
            `(low, high)` for each partition, `high` being the offset after the last record.

        Raises:
            KafkaRequestError: if the answers did not come in time or a partition does not exist.
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
            # Both requests are on their way before the first answer is awaited.
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

        return retry("the watermarks could not be read", ask, deadline)

    def committed(
        self,
        group: str,
        partitions: Collection[TopicPartition],
        require_stable: bool = True,
        timeout: float = 30,
    ) -> dict[TopicPartition, int | None]:
        """Return the offsets that a consumer group committed.

        Args:
            group: name of the group.
            partitions: which ones.
            require_stable: whether to wait while a transaction has an offset commit pending. Without it the
                former offset is returned, from which no reader may start.
            timeout: seconds to wait for the answers; above 0.

        Returns:
            For each partition the next offset to read, or None without a committed offset.

        Raises:
            KafkaRequestError: if the offsets could not be read in time.
        """
        found = self._groups.read(group, partitions, require_stable, time.monotonic() + timeout)
        return {place: entry.offset for place, entry in found.items()}

    def committed_stable(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return what a consumer group committed, once no transaction is about to change it.

        Args:
            group: name of the group.
            partitions: which ones.
            timeout: seconds to wait, also for such transactions to end; above 0.

        Raises:
            KafkaRequestError: if the offsets could not be read in time; its `code` is
                `KafkaError.UNSTABLE_OFFSET_COMMIT` if a transaction is still open.
        """
        return self._groups.read(group, partitions, True, time.monotonic() + timeout)

    def committed_now(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return what a consumer group has committed, though a transaction may be about to change it: nobody may start there.

        Args:
            group: name of the group.
            partitions: which ones.
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
            KafkaRequestError: if the group does not take them, such as one that has members.
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
        """Return the first offset of a partition and its high watermark, whatever transactions are open.

        Args:
            partition: which one.
            timeout: seconds to wait for the answers; above 0.

        Raises:
            KafkaRequestError: if the answers did not come in time or the partition does not exist.
        """
        return self.watermarks([partition], timeout)[partition]

    def delete_records(self, offsets: Mapping[TopicPartition, int], timeout: float = 30) -> None:
        """Delete the records below offsets. Those that are gone already, and offsets above the end, are passed over.

        Args:
            offsets: for each partition the first offset to keep.
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if records could not be deleted; it tells all partitions.
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
        """Let go of the connections. Requests that are under way may fail; whoever asks anew, connects anew.

        Whoever does not call it keeps the connections until this object is gone.
        """
        self._groups.close()
        self._renew_client()

    @cached_property
    def _groups(self) -> GroupOffsets:
        # Another callback than that of the admin client, which refers to this object.
        return GroupOffsets({**self._options, "error_cb": self._log_error})

    def _offset(self, answer: "Future[ListOffsetsResultInfo]", deadline: float) -> int:
        """Return the offset that a broker told."""
        offset: int = self._wait(answer, seconds_left(deadline)).offset
        if offset < 0:
            # If the broker goes away while it is asked, librdkafka 2.16 calls this the answer instead of an error.
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the broker went away before it answered"))
        return offset

    def _exist(self, partitions: Collection[TopicPartition], deadline: float) -> bool:
        """Return whether all partitions exist, and learn their leaders anew.

        librdkafka does not learn them by itself when a request is refused by a former leader.

        Raises:
            KafkaException: if no broker tells whether they do.
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
