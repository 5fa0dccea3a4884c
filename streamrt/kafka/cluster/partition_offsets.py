"""The first and the end offsets of partitions, and the deletion of records."""

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Literal

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from streamrt.kafka.client import KafkaRequestError, build_client, error_in, partition_offsets, request_error
from streamrt.kafka.cluster.requests import AdminRequests, retry, seconds_left
from streamrt.kafka.cluster.topic_ids import repeated
from streamrt.records import TopicPartition

__all__ = ["IsolationLevelName", "PartitionOffsets"]

IsolationLevelName = Literal["read_committed", "read_uncommitted"]
"""End of a partition: its last stable offset, before any open transaction; or the offset after its last record."""

_ISOLATION = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}
_Question = tuple[Collection[TopicPartition], Callable[[], OffsetSpec], IsolationLevelName]
"""Partitions, which of their offsets, and what counts as the end."""

_LEADERS_S = 60.0
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
        # The client whose cache has the leaders of topics, and since when.
        self._client: AdminClient | None = None
        self._cached_at: dict[str, float] = {}

    def bounds(
        self, partitions: Collection[TopicPartition], timeout: float, isolation_level: IsolationLevelName
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end offset of partitions.

        Raises:
            KafkaRequestError: if a partition does not exist or the answers did not arrive in time.
        """
        low, high = self._list_offsets(
            ((partitions, OffsetSpec.earliest, isolation_level), (partitions, OffsetSpec.latest, isolation_level)),
            timeout,
        )
        return {partition: (low[partition], high[partition]) for partition in partitions}

    def ends(
        self, stable: Collection[TopicPartition], high: Collection[TopicPartition], timeout: float
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the last stable offsets of partitions, and the offsets after the last records of others.

        Raises:
            KafkaRequestError: if a partition does not exist or the answers did not arrive in time.
        """
        found = self._list_offsets(
            ((stable, OffsetSpec.latest, "read_committed"), (high, OffsetSpec.latest, "read_uncommitted")), timeout
        )
        return found[0], found[1]

    def _list_offsets(self, questions: Sequence[_Question], timeout: float) -> list[dict[TopicPartition, int]]:
        deadline = time.monotonic() + timeout
        partitions = {partition for wanted, _, _ in questions for partition in wanted}
        if not partitions:
            return [{} for _ in questions]
        client_questions = [
            ({_to_confluent(partition): partition for partition in wanted}, spec, _ISOLATION[isolation])
            for wanted, spec, isolation in questions
        ]

        def ask() -> list[dict[TopicPartition, int]]:
            self._cache_leaders(partitions, deadline)
            # Send all requests before waiting for the first answer.
            answers = [
                self._requests.client.list_offsets(
                    dict.fromkeys(entries, spec()), isolation_level=isolation, request_timeout=seconds_left(deadline)
                )
                if entries
                else {}
                for entries, spec, isolation in client_questions
            ]
            try:
                return [
                    {entries[entry]: self._await_offset(answer, deadline) for entry, answer in each.items()}
                    for (entries, _, _), each in zip(client_questions, answers, strict=True)
                ]
            except KafkaException as error:
                reason = error_in(error)
                if reason.code() in _MOVED and self._all_exist(partitions, deadline):
                    raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, reason.str())) from None
                raise

        return retry("the start and end offsets could not be read", ask, deadline)

    def at_time(
        self, partitions: Collection[TopicPartition], timestamp_ms: int, timeout: float
    ) -> dict[TopicPartition, int]:
        """Return for each partition the first offset whose timestamp is at or after a time, or the end offset.

        Raises:
            KafkaRequestError: if a partition does not exist or the answers did not arrive in time.
        """
        deadline = time.monotonic() + timeout
        wanted = dict.fromkeys(partitions, timestamp_ms)
        # The admin client's answer for "all records are older" is also its answer if the broker goes away; the consumer's
        # is not.
        options = {**self._requests.consumer_options, "group.id": "streamrt-times", "enable.auto.commit": False}
        client = build_client(ConfluentConsumer, options)

        def ask() -> dict[TopicPartition, int]:
            entries = client.offsets_for_times(partition_offsets(wanted), seconds_left(deadline))
            for entry in entries:
                if entry.error is not None:
                    raise KafkaException(entry.error)
            return {TopicPartition(entry.topic, entry.partition): entry.offset for entry in entries}

        try:
            found = retry("the offsets at a time could not be read", ask, deadline) if wanted else {}
        finally:
            client.close()
        late = [partition for partition, offset in found.items() if offset < 0]
        ends = self.bounds(late, seconds_left(deadline), "read_uncommitted")
        return {**found, **{partition: end for partition, (_, end) in ends.items()}}

    def delete_records(self, offsets: Mapping[TopicPartition, int], timeout: float) -> None:
        """Delete the records below offsets. Records that are already deleted, and offsets above the end, are ignored.

        Raises:
            KafkaRequestError: if records could not be deleted; the message lists all affected partitions.
        """
        if not offsets:
            return
        deadline = time.monotonic() + timeout + 1
        # The request fails for the same reason, and names the partition.
        with contextlib.suppress(KafkaException):
            self._cache_leaders(offsets, deadline)
        futures = self._requests.client.delete_records(
            partition_offsets(offsets), request_timeout=timeout, operation_timeout=timeout
        )
        failures: list[KafkaRequestError] = []
        for entry, future in futures.items():
            _, error = self._requests.wait_for_result(future, seconds_left(deadline))
            if error is not None and error.code() != KafkaError.OFFSET_OUT_OF_RANGE:
                partition = TopicPartition(entry.topic, entry.partition)
                failures.append(request_error(f"records of {partition} could not be deleted", error))
        if failures:
            retriable = all(failure.retriable for failure in failures)
            raise KafkaRequestError("; ".join(map(str, failures)), failures[0].code, retriable)

    def _await_offset(self, answer: "Future[ListOffsetsResultInfo]", deadline: float) -> int:
        """Return the offset in a broker's answer."""
        offset: int = self._requests.wait(answer, seconds_left(deadline)).offset
        if offset < 0:
            # If the broker goes away during the request, librdkafka 2.16 returns this as the answer instead of an
            # error.
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the broker went away before it answered"))
        return offset

    def _cache_leaders(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Let the client cache the leaders of partitions before a request that is sent to them.

        librdkafka 2.16 looks for leaders that it does not know in two threads, of which one may free what the other one
        still uses: such a request then crashes the process.

        Raises:
            KafkaException: if a partition does not exist or has no leader, or no broker answers.
        """
        if self._client is not self._requests.client:
            self._client = self._requests.client
            self._cached_at.clear()
        now = time.monotonic()
        old = [each for each in partitions if now - self._cached_at.get(each.topic, float("-inf")) >= _LEADERS_S]
        if not old:
            return
        if not self._all_exist(old, deadline):
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "a partition does not exist"))
        if any(each.topic not in self._cached_at for each in old):
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "a partition has no leader"))

    def _all_exist(self, partitions: Collection[TopicPartition], deadline: float) -> bool:
        """Return whether all partitions exist, and refresh their leaders.

        librdkafka does not refresh them automatically when a former leader refuses a request. That one does not exist
        counts only if brokers repeat it: those that start, or whose metadata lag, do not know all topics yet.

        Raises:
            KafkaException: if no broker answers.
        """
        topics = {partition.topic for partition in partitions}

        def are_known() -> bool:
            found = self._requests.describe_topics(topics, deadline)
            counts = {name: len(description.partitions) for name, description in found.items()}
            return all(partition.partition < counts.get(partition.topic, 0) for partition in partitions)

        exist = repeated(are_known, deadline)
        if exist:
            for topic in topics:
                with contextlib.suppress(KafkaException):
                    found = self._requests.client.list_topics(topic, timeout=seconds_left(deadline)).topics[topic]
                    if found.error is None and all(each.leader >= 0 for each in found.partitions.values()):
                        self._cached_at[topic] = time.monotonic()
        return exist


def _to_confluent(partition: TopicPartition) -> ConfluentTopicPartition:
    return ConfluentTopicPartition(partition.topic, partition.partition)
