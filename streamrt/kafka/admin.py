"""Topics and offsets of a cluster: inspect, create, delete, watermarks, committed offsets."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import (
    TimeoutError as FutureTimeoutError,  # another class than TimeoutError before 3.11
)
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from streamrt.errors import KafkaBrokerUnavailableError, TopicCreationError
from streamrt.kafka.client import (
    KafkaRequestError,
    build_client,
    client_options,
    error_in,
    is_retriable,
    log_error_to,
    request_error,
)
from streamrt.kafka.connection import ConnectionConfig, as_connection
from streamrt.models import TopicPartition

__all__ = ["IsolationLevelName", "TopicAdmin", "TopicConfig", "TopicDefinition"]

IsolationLevelName = Literal["read_committed", "read_uncommitted"]
R = TypeVar("R")

_LOGGER = logging.getLogger(__name__)
_RETRY_S = 0.1
_ISOLATION = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}
_ADVICE = {
    KafkaError.INVALID_REPLICATION_FACTOR: "set a replication_factor that is not above the number of brokers",
    KafkaError.INVALID_PARTITIONS: "set num_partitions to 1 or more",
    KafkaError.INVALID_CONFIG: "correct extra_config",
    KafkaError.POLICY_VIOLATION: "ask the cluster's administrator which settings its policy allows",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user CREATE on the topic, or create it by hand",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the user CREATE on the cluster, or create it by hand",
    KafkaError.TOPIC_EXCEPTION: "use letters, digits, '.', '_' and '-' in the name",
    KafkaError._TIMED_OUT: "see whether the brokers are up, or raise the timeout",
}
_REFUSED = frozenset({KafkaError._SSL, KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})
_ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION})


@dataclass
class TopicConfig:
    """Settings of a topic in the cluster.

    Attributes:
        num_partitions: number of partitions; None leaves it to the cluster.
        replication_factor: number of copies; None leaves it to the cluster.
        extra_config: options of the topic such as `{"retention.ms": "3600000"}`.
        defaulted: names of the settings that were filled in rather than declared.

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
    """What `TopicAdmin.create_topics` needs to know of a topic."""

    @property
    def name(self) -> str:
        """Name of the topic."""

    @property
    def config(self) -> TopicConfig | None:
        """Settings of the topic; None leaves them to the cluster."""


class TopicAdmin:
    """Inspects and changes the topics of a cluster, and reads offsets without being a consumer.

    The client is created on first use and lives as long as this object. Its methods may be called from any
    thread.

    Args:
        broker_address: `host:port`, or a `ConnectionConfig`.
        logger: where the log lines of librdkafka go.
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
        self._address = as_connection(broker_address).bootstrap_servers
        self._logger = logger
        self._last_error: KafkaError | None = None
        self._log_error = log_error_to(logger)
        self._options = client_options(
            broker_address,
            extra_config,
            logger,
            self._on_error,
            # The default, 100 ms doubling to 10 s, can leave a broker unnoticed for 10 s after it is back.
            defaults={"reconnect.backoff.max.ms": 2000},
            fixed={},
        )
        self._inner: AdminClient | None = None

    def wait_for_broker(self, timeout: float) -> None:
        """Return as soon as a broker answers.

        Args:
            timeout: seconds to wait; 0 returns at once without asking.

        Raises:
            KafkaBrokerUnavailableError: if no broker answered in time.
        """
        if timeout <= 0:
            return
        self._last_error = None
        deadline = time.monotonic() + timeout
        while True:
            remaining = deadline - time.monotonic()
            _, error = self._settle(self._client.describe_cluster(request_timeout=_remaining(deadline)), remaining)
            if error is None:
                return
            if not is_retriable(error):
                self._last_error = error
                break
            if time.monotonic() + _RETRY_S >= deadline:
                break
            time.sleep(_RETRY_S)
        reason = self._last_error
        said = f" (the client says: {reason.str()})" if reason is not None else ""
        refused = reason is not None and reason.code() in _REFUSED
        advice = "correct the security settings of broker_address" if refused else "start it or correct broker_address"
        raise KafkaBrokerUnavailableError(
            f"no Kafka broker answered at {self._address} within {timeout:g} s{said}; {advice}"
        )

    def list_topics(self, timeout: float = -1) -> dict[str, Any]:
        """Return the metadata of all topics by name, as confluent-kafka describes them.

        Args:
            timeout: seconds to wait for the answer; -1 waits for ever.

        Raises:
            KafkaRequestError: if the answer did not come in time.
        """
        try:
            return dict(self._client.list_topics(timeout=timeout).topics)
        except KafkaException as error:
            raise request_error(f"the topics of {self._address} could not be listed", error) from None
        finally:
            self._client.poll(0)

    def inspect_topics(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        """Return the settings that topics have in the cluster; asking creates no topic.

        Args:
            topic_names: names of the topics.
            timeout: seconds to wait for the answers; above 0.

        Returns:
            For each name its settings, `extra_config` with all options of the topic, or None if it does not
            exist.

        Raises:
            KafkaRequestError: if the answers did not come in time or were refused.

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
        """Create topics and wait until every partition has a leader; existing topics are left as they are.

        Args:
            topics: the topics, with name and settings.
            timeout: seconds to wait for the brokers to accept; above 0.
            finalize_timeout: seconds to wait for the partitions to be ready.

        Raises:
            TopicCreationError: if a topic could not be created or is not ready in time; it tells all of them.
        """
        requested = {topic.name: topic for topic in topics}
        if not requested:
            return
        futures = self._client.create_topics(
            [_new_topic(topic) for topic in requested.values()],
            operation_timeout=timeout,
            request_timeout=timeout,
        )
        failures: dict[str, str] = {}
        for name, future in futures.items():
            _, error = self._settle(future, timeout + 1)
            if error is None:
                self._logger.info("Created topic %s", name)
            elif error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                failures[name] = _advise(error)
        waiting = [name for name in requested if name not in failures]
        failures.update(self._await_leaders(waiting, finalize_timeout))
        if failures:
            listed = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
            raise TopicCreationError(f"{len(failures)} of {len(requested)} topics could not be created: {listed}")

    def delete_topics(self, topic_names: Collection[str], timeout: float = 30) -> None:
        """Delete topics; those that do not exist are passed over.

        Args:
            topic_names: names of the topics.
            timeout: seconds to wait for the brokers; above 0.

        Raises:
            KafkaRequestError: if a topic could not be deleted.
        """
        if not topic_names:
            return
        futures = self._client.delete_topics(list(topic_names), operation_timeout=timeout, request_timeout=timeout)
        failures: list[KafkaRequestError] = []
        for name, future in futures.items():
            _, error = self._settle(future, timeout + 1)
            if error is not None and error.code() not in _ABSENT:
                failures.append(request_error(f"topic {name} could not be deleted", error))
        if failures:
            raise KafkaRequestError("; ".join(map(str, failures)), failures[0].code, failures[0].retriable)

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
                "request_timeout": _remaining(deadline),
            }
            # Both requests are on their way before the first answer is awaited.
            low, high = (
                self._client.list_offsets(dict.fromkeys(entries, spec()), **options)
                for spec in (OffsetSpec.earliest, OffsetSpec.latest)
            )
            return {
                partition: (
                    self._wait(low[entry], _remaining(deadline)).offset,
                    self._wait(high[entry], _remaining(deadline)).offset,
                )
                for entry, partition in entries.items()
            }

        return _retry("the watermarks could not be read", ask, deadline)

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
        if not partitions:
            return {}
        deadline = time.monotonic() + timeout
        wanted = set(partitions)

        def ask() -> dict[TopicPartition, int | None]:
            request = ConsumerGroupTopicPartitions(group, [_confluent(partition) for partition in wanted])
            futures = self._client.list_consumer_group_offsets(
                [request], require_stable=require_stable, request_timeout=_remaining(deadline)
            )
            answer = self._wait(futures[group], _remaining(deadline))
            found: dict[TopicPartition, int | None] = dict.fromkeys(partitions)
            for entry in answer.topic_partitions:
                if entry.error is not None:
                    raise KafkaException(entry.error)
                if entry.offset >= 0:
                    found[TopicPartition(entry.topic, entry.partition)] = entry.offset
            return found

        return _retry(f"the offsets of group {group} could not be read", ask, deadline)

    @property
    def _client(self) -> AdminClient:
        if self._inner is None:
            self._inner = build_client(AdminClient, self._options)
        return self._inner

    def _on_error(self, error: KafkaError) -> None:
        # "All brokers are down" follows the error that tells the reason; the reason is worth more.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._last_error is None:
            self._last_error = error
        self._log_error(error)

    def _wait(self, future: "Future[R]", timeout: float) -> R:
        """Return the result of a request.

        Raises:
            KafkaException: if the request failed or took longer than `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                return future.result(max(0.0, min(_RETRY_S, deadline - time.monotonic())))
            except FutureTimeoutError:
                if time.monotonic() >= deadline:
                    raise KafkaException(
                        KafkaError(KafkaError._TIMED_OUT, f"no answer within {timeout:.3g} s")
                    ) from None
            finally:
                # An admin client calls its log and error callbacks in poll() alone.
                self._client.poll(0)

    def _settle(self, future: "Future[R]", timeout: float) -> tuple[R | None, KafkaError | None]:
        """Return the result of a request, or the error that it met."""
        try:
            return self._wait(future, timeout), None
        except KafkaException as error:
            return None, error_in(error)

    def _describe(self, topic_names: Collection[str], deadline: float) -> dict[str, Any]:
        """Return the descriptions of the topics that exist."""
        if not topic_names:
            return {}

        def ask() -> dict[str, Any]:
            found: dict[str, Any] = {}
            futures = self._client.describe_topics(
                TopicCollection(list(dict.fromkeys(topic_names))), request_timeout=_remaining(deadline)
            )
            for name, future in futures.items():
                description, error = self._settle(future, _remaining(deadline))
                if error is None:
                    found[name] = description
                elif error.code() not in _ABSENT:
                    raise KafkaException(error)
            return found

        return _retry("the topics could not be described", ask, deadline)

    def _describe_configs(self, names: Sequence[str], deadline: float) -> dict[str, dict[str, str]]:
        if not names:
            return {}

        def ask() -> dict[str, dict[str, str]]:
            resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
            futures = self._client.describe_configs(resources, request_timeout=_remaining(deadline))
            found: dict[str, dict[str, str]] = {}
            for resource, future in futures.items():
                entries, error = self._settle(future, _remaining(deadline))
                if entries is not None:
                    found[resource.name] = {
                        key: entry.value for key, entry in entries.items() if entry.value is not None
                    }
                elif error is not None and error.code() not in _ABSENT:
                    raise KafkaException(error)
            return found

        return _retry("the settings of the topics could not be read", ask, deadline)

    def _await_leaders(self, names: Collection[str], timeout: float) -> dict[str, str]:
        """Wait until all partitions have leaders; return the topics that were not ready, with the reason."""
        deadline = time.monotonic() + timeout
        waiting = set(names)
        while waiting:
            try:
                found = self._describe(waiting, deadline)
            except KafkaRequestError as error:
                return dict.fromkeys(waiting, str(error))
            waiting -= {name for name, description in found.items() if _has_leaders(description)}
            if waiting and time.monotonic() + _RETRY_S >= deadline:
                return dict.fromkeys(waiting, f"its partitions have no leaders after {timeout:g} s")
            if waiting:
                time.sleep(_RETRY_S)
        return {}


def _remaining(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


def _confluent(partition: TopicPartition) -> ConfluentTopicPartition:
    return ConfluentTopicPartition(partition.topic, partition.partition)


def _retry(what: str, ask: Callable[[], R], deadline: float) -> R:
    """Call `ask` until it succeeds, fails for good, or the deadline has come."""
    while True:
        try:
            return ask()
        except KafkaException as error:
            failure = request_error(what, error)
        if not failure.retriable or time.monotonic() + _RETRY_S >= deadline:
            raise failure
        time.sleep(_RETRY_S)


def _advise(error: KafkaError) -> str:
    advice = _ADVICE.get(error.code())
    return f"{error.str()} ({error.name()})" + (f": {advice}" if advice else "")


def _new_topic(topic: TopicDefinition) -> NewTopic:
    config = topic.config or TopicConfig(None, None)
    return NewTopic(
        topic.name,
        # -1 is Kafka's own sign for "the default of the cluster".
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
