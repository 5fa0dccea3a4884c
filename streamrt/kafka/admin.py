"""Administration of a cluster's topics: inspect, create, delete; for offsets, see `streamrt.kafka.offsets`."""

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic

from streamrt.errors import TopicCreationError
from streamrt.kafka.client import KafkaRequestError, request_error
from streamrt.kafka.offsets import CommittedOffset, IsolationLevelName, OffsetRequests
from streamrt.kafka.requests import ABSENT, RETRY_S, retry, seconds_left

__all__ = ["CommittedOffset", "IsolationLevelName", "TopicAdmin", "TopicConfig", "TopicDefinition"]

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


@dataclass
class TopicConfig:
    """Settings of a topic in the cluster.

    Attributes:
        num_partitions: number of partitions; None leaves it to the cluster.
        replication_factor: number of replicas; None leaves it to the cluster.
        extra_config: options of the topic such as `{"retention.ms": "3600000"}`.
        defaulted: names of the settings that come from defaults and were not declared.

    Example:
        >>> TopicConfig(num_partitions=3, replication_factor=1).as_dict()
        {'num_partitions': 3, 'replication_factor': 1, 'extra_config': {}}
    """

    num_partitions: int | None
    replication_factor: int | None
    extra_config: dict[str, str] = field(default_factory=dict)
    defaulted: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as a dict."""
        return {
            "num_partitions": self.num_partitions,
            "replication_factor": self.replication_factor,
            "extra_config": dict(self.extra_config),
        }


class TopicDefinition(Protocol):
    """The properties of a topic that `TopicAdmin.create_topics` needs."""

    @property
    def name(self) -> str:
        """Name of the topic."""

    @property
    def config(self) -> TopicConfig | None:
        """Settings of the topic; None leaves them to the cluster."""


class TopicAdmin(OffsetRequests):
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

    def list_topics(self, timeout: float = -1) -> dict[str, Any]:
        """Return the metadata of all topics by name, in confluent-kafka's form.

        Args:
            timeout: seconds to wait for the answer; -1 waits forever.

        Raises:
            KafkaRequestError: if the answer did not arrive in time.
        """
        try:
            return dict(self._client.list_topics(timeout=timeout).topics)
        except KafkaException as error:
            raise request_error(f"the topics of {self._address} could not be listed", error) from None
        finally:
            self._client.poll(0)

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
        shapes = {name: _shape_of(found) for name, found in self._describe(topic_names, deadline).items()}
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
            left_s = self._find_controller(timeout)
        except KafkaRequestError as failure:
            raise TopicCreationError(f"{', '.join(requested)} could not be created: {failure}") from None
        futures = self._client.create_topics(
            [_new_topic(topic) for topic in requested.values()], operation_timeout=left_s, request_timeout=left_s
        )
        failures: dict[str, str] = {}
        for name, future in futures.items():
            _, error = self._settle(future, left_s + 1)
            if error is None:
                self._logger.info("Created topic %s", name)
            elif error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                failures[name] = _advise(error)
        waiting = [name for name in requested if name not in failures]
        failures.update(self._await_leaders(waiting, finalize_timeout))
        if failures:
            listed = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
            raise TopicCreationError(f"{len(failures)} of {len(requested)} topics could not be created: {listed}")

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
            found = self._client.list_topics(timeout=seconds_left(deadline)).topics
            return sorted(name for name in found if name.startswith(prefix))

        return retry("the names of the topics could not be read", ask, deadline)

    def group_is_active(self, group: str, timeout: float = 30) -> bool:
        """Return whether a consumer group has members.

        Args:
            group: name of the group.
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if no coordinator answered in time.
        """
        deadline = time.monotonic() + timeout

        def ask() -> bool:
            # `describe_consumer_groups` of librdkafka 2.16 ends the process if the coordinator goes away during the
            # call.
            future = self._client.list_consumer_groups(request_timeout=seconds_left(deadline))
            answer, error = self._settle(future, seconds_left(deadline))
            if error is not None:
                raise KafkaException(error)
            if answer is None or answer.errors:
                # A coordinator may still be loading its groups.
                raise KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
            states = {found.group_id: found.state for found in answer.valid}
            return states.get(group) not in (None, ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)

        return retry(f"the state of group {group} could not be read", ask, deadline)

    def delete_topics(self, topic_names: Collection[str], timeout: float = 30) -> None:
        """Delete topics; missing topics are ignored.

        Args:
            topic_names: names of the topics.
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if a topic could not be deleted.
        """
        if not topic_names:
            return
        left_s = self._find_controller(timeout)
        futures = self._client.delete_topics(list(topic_names), operation_timeout=left_s, request_timeout=left_s)
        failures: list[KafkaRequestError] = []
        for name, future in futures.items():
            _, error = self._settle(future, left_s + 1)
            if error is not None and error.code() not in ABSENT:
                failures.append(request_error(f"topic {name} could not be deleted", error))
        if failures:
            raise KafkaRequestError("; ".join(map(str, failures)), failures[0].code, failures[0].retriable)

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
        found = self._describe(topic_names, time.monotonic() + timeout)
        return {name: str(found[name].topic_id) if name in found else None for name in dict.fromkeys(topic_names)}

    def _describe(self, topic_names: Collection[str], deadline: float) -> dict[str, Any]:
        """Return the descriptions of the existing topics."""
        if not topic_names:
            return {}
        return retry("the topics could not be described", lambda: self._descriptions(topic_names, deadline), deadline)

    def _describe_configs(self, names: Sequence[str], deadline: float) -> dict[str, dict[str, str]]:
        if not names:
            return {}

        def ask() -> dict[str, dict[str, str]]:
            resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
            futures = self._client.describe_configs(resources, request_timeout=seconds_left(deadline))
            found: dict[str, dict[str, str]] = {}
            for resource, future in futures.items():
                entries, error = self._settle(future, seconds_left(deadline))
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
        waiting = set(names)
        while waiting:
            try:
                found = self._describe(waiting, deadline)
            except KafkaRequestError as error:
                return dict.fromkeys(waiting, str(error))
            waiting -= {name for name, description in found.items() if _has_leaders(description)}
            if waiting and time.monotonic() + RETRY_S >= deadline:
                return dict.fromkeys(waiting, f"its partitions have no leaders after {timeout:g} s")
            if waiting:
                time.sleep(RETRY_S)
        return {}


def _advise(error: KafkaError) -> str:
    advice = _ADVICE.get(error.code())
    return f"{error.str()} ({error.name()})" + (f": {advice}" if advice else "")


def _new_topic(topic: TopicDefinition) -> NewTopic:
    config = topic.config or TopicConfig(None, None)
    return NewTopic(
        topic.name,
        # -1 is Kafka's value for "the default of the cluster".
        num_partitions=-1 if config.num_partitions is None else config.num_partitions,
        replication_factor=-1 if config.replication_factor is None else config.replication_factor,
        config={key: str(value) for key, value in config.extra_config.items()},
    )


def _shape_of(description: Any) -> tuple[int, int]:
    partitions = description.partitions
    return len(partitions), len(partitions[0].replicas) if partitions else 0


def _has_leaders(description: Any) -> bool:
    return bool(description.partitions) and all(
        partition.leader is not None and partition.leader.id >= 0 for partition in description.partitions
    )
