"""Administration of a cluster: topics, the offsets of partitions, and the committed offsets of consumer groups."""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from streamrt.common.backoff import Backoff
from streamrt.errors import TopicCreationError
from streamrt.kafka.client import KafkaRequestError, OffsetMetadata, request_error
from streamrt.kafka.cluster.committed import CommittedOffset, GroupOffsets, commit_offsets
from streamrt.kafka.cluster.groups import ConsumerGroups, GroupDescription, GroupListing, ListedMember
from streamrt.kafka.cluster.partition_offsets import IsolationLevelName, PartitionOffsets
from streamrt.kafka.cluster.requests import ABSENT, RETRY_S, AdminRequests, retry, seconds_left
from streamrt.kafka.cluster.topic_config import Broker, PartitionReplicas, TopicConfig, TopicDefinition
from streamrt.kafka.connection import ConnectionConfig, HoldsSecrets
from streamrt.records import TopicPartition

__all__ = ["TopicAdmin"]

_LOGGER = logging.getLogger("streamrt.kafka.cluster.admin")


class TopicAdmin(HoldsSecrets):
    """Inspect and change the topics of a cluster, and read offsets without a consumer.

    The client is created on first use and lives as long as this object. Methods may be called from any thread.

    Args:
        broker_address: `host:port`, or a `ConnectionConfig`.
        logger: logger for the lines of librdkafka.
        extra_config: options of librdkafka.

    Example:
        >>> admin = TopicAdmin("localhost:9092")
        >>> admin.inspect_topics(["orders"])["orders"].num_partitions  # doctest: +SKIP
        3
    """

    def __init__(
        self,
        broker_address: str | ConnectionConfig,
        logger: logging.Logger = _LOGGER,
        extra_config: Mapping[str, Any] | None = None,
    ) -> None:
        self._logger = logger
        self._requests = AdminRequests(broker_address, logger, extra_config)
        self._offsets = PartitionOffsets(self._requests)
        self._groups = GroupOffsets(self._requests.consumer_options)
        self._group_lists = ConsumerGroups(self._requests)

    # -- The cluster ---------------------------------------------------------------------------------------------

    def wait_for_broker(self, timeout: float) -> None:
        """Wait until a broker answers.

        Args:
            timeout: seconds to wait; 0 returns at once without a request.

        Raises:
            KafkaBrokerUnavailableError: if no broker answered in time.
        """
        self._requests.wait_for_broker(timeout)

    def cluster_id(self, timeout: float = 30) -> str:
        """Return Kafka's id of the cluster.

        Args:
            timeout: seconds to wait for the answer; above 0.

        Raises:
            KafkaRequestError: if the request was refused or not answered in time.
        """
        return str(self._requests.cluster(timeout).cluster_id or "")

    def broker_count(self, timeout: float = 30) -> int:
        """Return the current number of brokers in the cluster.

        Args:
            timeout: seconds to wait for the answer; above 0.

        Raises:
            KafkaRequestError: if the request was refused or not answered in time.
        """
        return len(self._requests.cluster(timeout).brokers)

    def brokers(self, timeout: float = 30) -> list[Broker]:
        """Return the brokers of the cluster, sorted by number; see `broker_count`."""
        cluster = self._requests.cluster(timeout)
        return [
            Broker(each.id, each.host, each.port, each.id == cluster.controller_id)
            for each in sorted(cluster.brokers.values(), key=lambda broker: broker.id)
        ]

    def close(self) -> None:
        """Close the connections. In-flight requests may fail; a later request connects again.

        Without this call, the connections stay open until this object is deleted.
        """
        self._groups.close()
        self._requests.close()

    # -- Topics --------------------------------------------------------------------------------------------------

    def list_topics(self, timeout: float = -1) -> dict[str, Any]:
        """Return the metadata of all topics by name, in confluent-kafka's form.

        Args:
            timeout: seconds to wait for the answer; -1 waits forever.

        Raises:
            KafkaRequestError: if the answer did not arrive in time.
        """
        try:
            return dict(self._requests.client.list_topics(timeout=timeout).topics)
        except KafkaException as error:
            raise request_error(f"the topics of {self._requests.address} could not be listed", error) from None
        finally:
            self._requests.poll()

    def inspect_topics(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        """Return the settings of topics in the cluster. The request does not create topics.

        Args:
            topic_names: names of the topics.
            timeout: seconds to wait for the answers; above 0.

        Returns:
            For each name its settings, `extra_config` with all options of the topic, or None if it does not
            exist.

        Raises:
            KafkaRequestError: if the request was refused or not answered in time.

        Example:
            >>> TopicAdmin("localhost:9092").inspect_topics([])
            {}
        """
        deadline = time.monotonic() + timeout
        described = self._describe_topics(topic_names, deadline)
        # One without partitions is being deleted.
        shapes = {name: _shape_of(found) for name, found in described.items() if found.partitions}
        existing = [name for name in dict.fromkeys(topic_names) if name in shapes]
        configs = self._describe_configs(existing, deadline)
        return {
            name: TopicConfig(*shapes[name], configs[name]) if name in configs else None
            for name in dict.fromkeys(topic_names)
        }

    def create_topics(
        self, topics: Iterable[TopicDefinition], timeout: float = 30, finalize_timeout: float = 60
    ) -> None:
        """Create topics and wait until every partition has a leader; existing topics are not changed.

        Args:
            topics: the topics, with name and settings.
            timeout: seconds to wait for the brokers to accept the request; above 0.
            finalize_timeout: seconds to wait for the partitions to be ready.

        Raises:
            TopicCreationError: if topics could not be created or are not ready in time; the message lists all of them.
        """
        requested = {topic.name: topic for topic in topics}
        if not requested:
            return
        try:
            left_s = self._requests.find_controller(timeout)
        except KafkaRequestError as failure:
            raise TopicCreationError(f"{', '.join(requested)} could not be created: {failure}") from None
        futures = self._requests.client.create_topics(
            [_new_topic(topic) for topic in requested.values()], operation_timeout=left_s, request_timeout=left_s
        )
        failures: dict[str, str] = {}
        for name, future in futures.items():
            _, error = self._requests.wait_for_result(future, left_s + 1)
            if error is None:
                self._logger.info("Created topic %s", name)
            elif error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                failures[name] = _explain_error(error)
        waiting = [name for name in requested if name not in failures]
        failures.update(self._await_leaders(waiting, finalize_timeout))
        if failures:
            listed = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
            raise TopicCreationError(f"{len(failures)} of {len(requested)} topics could not be created: {listed}")

    def creation_faults(self, topics: Iterable[TopicDefinition], timeout: float = 30) -> dict[str, str]:
        """Return why topics could not be created, by name. The brokers check the request, and create nothing.

        Args:
            topics: the topics, with name and settings.
            timeout: seconds to wait for the answers; above 0.

        Raises:
            KafkaRequestError: if no controller answered in time.
        """
        requested = [_new_topic(topic) for topic in topics]
        if not requested:
            return {}
        left_s = self._requests.find_controller(timeout)
        futures = self._requests.client.create_topics(
            requested, validate_only=True, operation_timeout=left_s, request_timeout=left_s
        )
        settled = {name: self._requests.wait_for_result(future, left_s + 1)[1] for name, future in futures.items()}
        return {name: _explain_error(error) for name, error in settled.items() if error is not None}

    def topic_names(self, prefix: str, timeout: float = 30) -> list[str]:
        """Return the names of the topics that begin with a prefix, sorted.

        Args:
            prefix: the prefix.
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if the names could not be read in time.
        """
        deadline = time.monotonic() + timeout

        def ask() -> list[str]:
            found = self._requests.client.list_topics(timeout=seconds_left(deadline)).topics
            return sorted(name for name in found if name.startswith(prefix))

        return retry("the names of the topics could not be read", ask, deadline)

    def delete_topics(self, topic_names: Collection[str], timeout: float = 30) -> None:
        """Delete topics, and wait until they are gone, so that others of these names can be created.

        Args:
            topic_names: names of the topics; missing ones are ignored.
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if a topic could not be deleted, or still exists after the timeout.
        """
        if not topic_names:
            return
        backoff = Backoff(RETRY_S, time.monotonic() + timeout)
        left_s = self._requests.find_controller(timeout)
        futures = self._requests.client.delete_topics(
            list(topic_names), operation_timeout=left_s, request_timeout=left_s
        )
        failures: list[KafkaRequestError] = []
        for name, future in futures.items():
            _, error = self._requests.wait_for_result(future, left_s + 1)
            if error is not None and error.code() not in ABSENT:
                failures.append(request_error(f"topic {name} could not be deleted", error))
        if failures:
            raise KafkaRequestError("; ".join(map(str, failures)), failures[0].code, failures[0].retriable)
        left = list(topic_names)
        while left := [name for name, topic_id in self.topic_ids(left, timeout).items() if topic_id is not None]:
            if not backoff.pause():
                raise KafkaRequestError(
                    f"{', '.join(left)} was deleted, and after {timeout:g} s it still exists, or exists again: stop whatever "
                    "reads or writes it, and run this again",
                    retriable=True,
                )

    def change_settings(self, topic_name: str, settings: Mapping[str, str | None], timeout: float = 30) -> None:
        """Change settings of a topic; the others stay as they are.

        Args:
            topic_name: name of the topic.
            settings: values by option, such as `{"retention.ms": "3600000"}`; None returns to the cluster's.
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if the brokers refuse, or do not answer in time.
        """
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic_name)
        for name, value in settings.items():
            operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=operation))
        left_s = self._requests.find_controller(timeout)
        futures = self._requests.client.incremental_alter_configs([resource], request_timeout=left_s)
        _, error = self._requests.wait_for_result(next(iter(futures.values())), left_s + 1)
        if error is not None:
            raise request_error(f"the settings of topic {topic_name} could not be changed", error)

    def add_partitions(self, topic_name: str, count: int, timeout: float = 30) -> None:
        """Add partitions to a topic, and wait until each has a leader.

        Args:
            topic_name: name of the topic.
            count: the number of partitions that it has afterwards.
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if the brokers refuse, or do not answer in time.
        """
        what = f"topic {topic_name} could not be given {count} partitions"
        left_s = self._requests.find_controller(timeout)
        futures = self._requests.client.create_partitions(
            [NewPartitions(topic_name, count)], operation_timeout=left_s, request_timeout=left_s
        )
        _, error = self._requests.wait_for_result(futures[topic_name], left_s + 1)
        if error is not None:
            raise request_error(what, error)
        deadline = time.monotonic() + timeout
        backoff = Backoff(RETRY_S, deadline)
        while True:
            found = self._describe_topics([topic_name], deadline).get(topic_name)
            if found is not None and len(found.partitions) >= count and _has_leaders(found):
                return
            if not backoff.pause():
                raise KafkaRequestError(f"{what}: some have no leader after {timeout:g} s", retriable=True)

    def partition_replicas(self, topic_name: str, timeout: float = 30) -> list[PartitionReplicas]:
        """Return where the partitions of a topic are, in their order.

        Args:
            topic_name: name of the topic.
            timeout: seconds to wait for the answer; above 0.

        Returns:
            One entry for each partition; none if the topic does not exist.

        Raises:
            KafkaRequestError: if the request was refused or not answered in time.
        """
        found = self._describe_topics([topic_name], time.monotonic() + timeout).get(topic_name)
        return [] if found is None else [_replicas_of(partition) for partition in found.partitions]

    def topic_ids(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, str | None]:
        """Return Kafka's ids of topics; a topic that is deleted and recreated has a different id.

        Args:
            topic_names: names of the topics.
            timeout: seconds to wait for the answers; above 0.

        Returns:
            For each name its id, or None if the topic does not exist.

        Raises:
            KafkaRequestError: if the request was refused or not answered in time.
        """
        found = self._describe_topics(topic_names, time.monotonic() + timeout)
        return {name: str(found[name].topic_id) if name in found else None for name in dict.fromkeys(topic_names)}

    # -- Partitions ----------------------------------------------------------------------------------------------

    def bounds(self, partition: TopicPartition, timeout: float = 30) -> tuple[int, int]:
        """Return the first offset and the high watermark of a partition, regardless of open transactions.

        Args:
            partition: the partition to look up.
            timeout: seconds to wait for the answers; above 0.

        Raises:
            KafkaRequestError: if the partition does not exist or the answers did not arrive in time.
        """
        return self.offset_bounds([partition], timeout)[partition]

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
        return self._offsets.bounds(partitions, timeout, isolation_level)

    def offset_ends(
        self, stable: Collection[TopicPartition], high: Collection[TopicPartition], timeout: float = 30
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the end offsets of partitions of both kinds (see `offset_bounds`), which are asked for together.

        Args:
            stable: the partitions whose last stable offsets are wanted.
            high: the partitions whose offsets after the last record are wanted.
            timeout: seconds to wait for the answers; above 0.

        Returns:
            The last stable offsets, and the offsets after the last records.

        Raises:
            KafkaRequestError: if a partition does not exist or the answers did not arrive in time.
        """
        return self._offsets.ends(stable, high, timeout)

    def offsets_at(
        self, partitions: Collection[TopicPartition], timestamp_ms: int, timeout: float = 30
    ) -> dict[TopicPartition, int]:
        """Return for each partition the offset of the first record that is not older than a time.

        Args:
            partitions: the partitions to look up.
            timestamp_ms: the time, in milliseconds since the Unix epoch.
            timeout: seconds to wait for the answers; above 0.

        Returns:
            The offsets; where all records are older, the offset after the last record.

        Raises:
            KafkaRequestError: if a partition does not exist or the answers did not arrive in time.
        """
        return self._offsets.at_time(partitions, timestamp_ms, timeout)

    def delete_records(self, offsets: Mapping[TopicPartition, int], timeout: float = 30) -> None:
        """Delete the records below offsets. Records that are already deleted, and offsets above the end, are ignored.

        Args:
            offsets: for each partition the first offset to keep.
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if records could not be deleted; the message lists all affected partitions.
        """
        self._offsets.delete_records(offsets, timeout)

    # -- Consumer groups -----------------------------------------------------------------------------------------

    def group_is_active(self, group: str, timeout: float = 30) -> bool:
        """Return whether a consumer group has members.

        Args:
            group: name of the group.
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if no coordinator answered in time.
        """
        group_state = self._group_lists.list(timeout).get(group)
        return group_state is not None and group_state.is_active

    def list_groups(self, timeout: float = 30) -> dict[str, GroupListing]:
        """Return all consumer groups by name, sorted.

        Args:
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if not all coordinators answered in time.
        """
        return self._group_lists.list(timeout)

    def describe_group(self, group: str, timeout: float = 30) -> GroupDescription | None:
        """Return a consumer group with its members, or None if it does not exist.

        Args:
            group: name of the group.
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if the brokers refuse or do not answer in time.
        """
        return self._group_lists.describe(group, timeout)

    def group_members(self, group: str, timeout: float = 30, *, is_classic: bool = False) -> tuple[ListedMember, ...]:
        """Return the members of a consumer group, with one request; without partitions while the group has no assignment.

        Args:
            group: name of the group.
            timeout: seconds to wait for the brokers; above 0.
            is_classic: whether the group has the classic protocol, if it exists: without it, other groups need not be listed.

        Raises:
            KafkaRequestError: if the brokers refuse or do not answer in time.
        """
        return self._group_lists.members(group, timeout, is_classic=is_classic)

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
        return {partition: entry.offset for partition, entry in found.items()}

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
        if offsets:
            commit_offsets(self._requests.consumer_options, group, offsets, metadata)

    # -- Requests ------------------------------------------------------------------------------------------------

    def _describe_topics(self, topic_names: Collection[str], deadline: float) -> dict[str, Any]:
        """Return the descriptions of the existing topics."""
        if not topic_names:
            return {}
        return retry(
            "the topics could not be described", lambda: self._requests.describe_topics(topic_names, deadline), deadline
        )

    def _describe_configs(self, names: Sequence[str], deadline: float) -> dict[str, dict[str, str]]:
        if not names:
            return {}

        def ask() -> dict[str, dict[str, str]]:
            resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
            futures = self._requests.client.describe_configs(resources, request_timeout=seconds_left(deadline))
            found: dict[str, dict[str, str]] = {}
            for resource, future in futures.items():
                entries, error = self._requests.wait_for_result(future, seconds_left(deadline))
                if entries is not None:
                    found[resource.name] = {
                        key: entry.value for key, entry in entries.items() if entry.value is not None
                    }
                elif error is not None and error.code() not in ABSENT:
                    raise KafkaException(error)
            return found

        return retry("the settings of the topics could not be read", ask, deadline)

    def _await_leaders(self, names: Collection[str], timeout: float) -> dict[str, str]:
        """Wait until all partitions have leaders; return the topics that are not ready, with the reason."""
        deadline = time.monotonic() + timeout
        backoff = Backoff(RETRY_S, deadline)
        waiting = set(names)
        while waiting:
            try:
                found = self._describe_topics(waiting, deadline)
            except KafkaRequestError as error:
                return dict.fromkeys(waiting, str(error))
            waiting -= {name for name, description in found.items() if _has_leaders(description)}
            if waiting and not backoff.pause():
                return dict.fromkeys(waiting, f"its partitions have no leaders after {timeout:g} s")
        return {}


_ADVICE = {
    KafkaError.INVALID_REPLICATION_FACTOR: "set a replication_factor that is not above the number of brokers",
    KafkaError.INVALID_PARTITIONS: "set num_partitions to 1 or more",
    KafkaError.INVALID_CONFIG: "correct extra_config",
    KafkaError.POLICY_VIOLATION: "ask the cluster's administrator which settings its policy allows",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user CREATE on the topic, or create it manually",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the user CREATE on the cluster, or create it manually",
    KafkaError.TOPIC_EXCEPTION: "use letters, digits, '.', '_' and '-' in the name",
    KafkaError._TIMED_OUT: "check that the brokers are up, or raise the timeout",
}


def _explain_error(error: KafkaError) -> str:
    """Return the text of an error of creating a topic, with what to do."""
    advice = _ADVICE.get(error.code())
    return f"{error.str()} ({error.name()})" + (f": {advice}" if advice else "")


def _new_topic(topic: TopicDefinition) -> NewTopic:
    """Return a topic as the client creates it."""
    config = topic.config or TopicConfig(None, None)
    return NewTopic(
        topic.name,
        # -1 is Kafka's value for "the default of the cluster".
        num_partitions=-1 if config.num_partitions is None else config.num_partitions,
        replication_factor=-1 if config.replication_factor is None else config.replication_factor,
        config={key: str(value) for key, value in config.extra_config.items()},
    )


def _shape_of(description: Any) -> tuple[int, int]:
    """Return the numbers of partitions and of replicas in the description of a topic."""
    partitions = description.partitions
    return len(partitions), len(partitions[0].replicas)


def _replicas_of(partition: Any) -> PartitionReplicas:
    """Return where the replicas of a partition are, from its description."""
    leader = partition.leader
    return PartitionReplicas(
        partition.id,
        leader.id if leader is not None and leader.id >= 0 else None,
        [node.id for node in partition.replicas],
        [node.id for node in partition.isr],
    )


def _has_leaders(description: Any) -> bool:
    """Return whether all partitions in the description of a topic have leaders."""
    return bool(description.partitions) and all(
        partition.leader is not None and partition.leader.id >= 0 for partition in description.partitions
    )
