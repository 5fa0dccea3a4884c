"""Questions about a cluster whose answers show whether an application can work with it."""

import logging
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from streamrt.errors import ConfigurationError
from streamrt.kafka.client import error_in
from streamrt.kafka.cluster.requests import OFFSETS_TOPIC, AdminRequests, seconds_left
from streamrt.kafka.connection import ConnectionConfig, HoldsSecrets
from streamrt.kafka.producer import Producer
from streamrt.kafka.writing.transactions import TRANSACTIONAL_ID_PREFIX, transactional_id

__all__ = [
    "REQUESTS",
    "ClusterChecks",
    "Permission",
    "Request",
    "has_newer_transactions",
    "lacking",
    "release_of",
    "requests_table",
    "require_consumer_protocol",
]

Need = Literal["always", "login", "exactly-once", "consumer"]


class Request(NamedTuple):
    """A request that StreamRT sends.

    Attributes:
        version: the lowest version that the brokers must support.
        purpose: what it is for.
        need: when it is sent: always, with SASL, with exactly-once, or with `group_protocol="consumer"`.
    """

    version: int
    purpose: str
    need: Need = "always"


REQUESTS: Mapping[str, Request] = {
    "ApiVersion": Request(0, "to learn what the brokers support"),
    "Metadata": Request(10, "topics, their partitions and ids"),
    "Produce": Request(3, "records with headers and timestamps"),
    "Fetch": Request(4, "committed records"),
    "ListOffsets": Request(2, "first offsets, stable ends, offsets of timestamps"),
    "FindCoordinator": Request(1, "the broker of a group, or of a transactional id"),
    "JoinGroup": Request(5, "membership with static ids"),
    "SyncGroup": Request(3, "assignments"),
    "Heartbeat": Request(3, "membership"),
    "LeaveGroup": Request(3, "the end of a membership; Spark's client ends those with static ids"),
    "OffsetCommit": Request(7, "progress"),
    "OffsetFetch": Request(7, "progress, behind transactions that end"),
    "ListGroups": Request(4, "whether a group has members"),
    "DescribeGroups": Request(0, "the instances of an application"),
    "CreateTopics": Request(4, "changelog, repartition and output topics"),
    "DeleteTopics": Request(1, "reset, forgotten stores"),
    "CreatePartitions": Request(0, "repartition"),
    "DeleteRecords": Request(0, "processed records of repartition topics"),
    "DescribeConfigs": Request(1, "checks of topics"),
    "IncrementalAlterConfigsRequest": Request(0, "settings of catalogues"),
    "InitProducerId": Request(3, "idempotent producers; fencing"),
    "AddPartitionsToTxn": Request(0, "outputs and changelogs", "exactly-once"),
    "AddOffsetsToTxn": Request(0, "progress", "exactly-once"),
    "TxnOffsetCommit": Request(3, "progress", "exactly-once"),
    "EndTxn": Request(1, "commits", "exactly-once"),
    "SaslHandshake": Request(1, "SASL", "login"),
    "SaslAuthenticate": Request(0, "SASL", "login"),
    "ConsumerGroupHeartbeat": Request(1, "membership and assignments", "consumer"),
    "ConsumerGroupDescribe": Request(0, "the instances of an application", "consumer"),
}
"""Every request of StreamRT, by librdkafka's names."""

_TRANSACTIONS_2 = ("EndTxn", 5)
"""A request that brokers of Kafka 4.0 support, where KIP-890 is complete."""
_RELEASES = (
    ("TxnOffsetCommit", 6, "4.4"),
    ("OffsetCommit", 10, "4.2 or 4.3"),
    ("Produce", 13, "4.1"),
    ("Produce", 12, "4.0"),
    ("ListOffsets", 9, "3.9"),
    ("Produce", 11, "3.8"),
    ("Produce", 10, "3.7"),
    ("Produce", 9, "2.8"),
)
"""Releases of Kafka, the newest first, each by the version of a request that it was the first to support."""
_API = re.compile(r"ApiKey (\w+) \((\d+)\) Versions (\d+)\.\.(\d+)")
_CHECKED = "streamrt-doctor"
_DENIED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


@dataclass(frozen=True)
class Permission:
    """Whether an operation is allowed.

    Attributes:
        allowed: None if the brokers do not say.
        reason: the brokers' answer if it is not allowed, or not said.
    """

    allowed: bool | None
    reason: str = ""


class ClusterChecks(HoldsSecrets):
    """Ask a cluster for its version, the permissions of the user, and traces of its clock.

    Args:
        connection: connection to the brokers.
    """

    def __init__(self, connection: ConnectionConfig) -> None:
        self._connection = connection
        self._versions: dict[str, int] = {}
        logger = logging.Logger("streamrt.kafka.checks")  # noqa: LOG001 - its lines are read here, and appear nowhere
        logger.addHandler(_ApiVersions(self._versions))
        self._logger = logger
        # librdkafka has no call for the versions of a broker's requests, but it logs them when it connects.
        self._requests = AdminRequests(connection, logger, {"debug": "feature", "log_level": 7})

    def close(self) -> None:
        """Close the connections."""
        self._requests.close()

    def api_versions(self, timeout: float) -> dict[str, int]:
        """Return the highest version of each request that a broker supports, by the names of librdkafka.

        Args:
            timeout: seconds to wait for the broker.

        Returns:
            The versions; empty if this version of librdkafka does not log them.

        Raises:
            KafkaRequestError: if no broker answered in time.
        """
        self._requests.cluster(timeout)
        self._requests.poll()
        return dict(self._versions)

    def may_create_topics(self, timeout: float) -> Permission:
        """Return whether the user may create topics. The brokers check a request, and do not create a topic.

        Args:
            timeout: seconds to wait for the answer.

        Raises:
            KafkaRequestError: if no broker answered in time.
        """
        left_s = self._requests.find_controller(timeout)
        topic = NewTopic(f"streamrt-check-{uuid.uuid4().hex[:8]}", num_partitions=1, replication_factor=-1)
        futures = self._requests.client.create_topics(
            [topic], validate_only=True, request_timeout=left_s, operation_timeout=left_s
        )
        for future in futures.values():
            _, error = self._requests.wait_for_result(future, left_s + 1)
            if error is not None:
                denied = error.code() in _DENIED
                return Permission(False if denied else None, f"{error.str()} ({error.name()})")
        return Permission(True)

    def may_use_transactions(self, group: str, timeout: float) -> Permission:
        """Return whether the user may use the transactional ids of an application.

        No request only asks this, so a producer takes such an id. Brokers forget it after
        `transactional.id.expiration.ms`, 7 days by default; if there never was a transaction, they create their topic
        for them.

        Args:
            group: the consumer group, which is a part of the id.
            timeout: seconds to wait for the answer.
        """
        options = {"transactional.id": transactional_id(TRANSACTIONAL_ID_PREFIX, group, _CHECKED, 0)}
        producer = Producer(self._connection, self._logger, extra_config=options, transactional=True)
        try:
            producer.init_transactions(timeout)
        except KafkaException as failure:
            error = error_in(failure)
            return Permission(False if error.code() in _DENIED else None, f"{error.str()} ({error.name()})")
        return Permission(True)

    def newest_commit_ms(self, timeout: float) -> int | None:
        """Return when a consumer group last committed an offset, by the clocks of the brokers.

        Args:
            timeout: seconds to wait for the answers.

        Returns:
            Milliseconds since the Unix epoch; None if no group has committed, or the user may not look.
        """
        deadline = time.monotonic() + timeout
        try:
            topic = self._requests.client.list_topics(OFFSETS_TOPIC, timeout=seconds_left(deadline)).topics[
                OFFSETS_TOPIC
            ]
            if topic.error is not None or not topic.partitions:
                return None
            wanted = {
                ConfluentTopicPartition(OFFSETS_TOPIC, number): OffsetSpec.max_timestamp()
                for number in topic.partitions
            }
            futures = self._requests.client.list_offsets(wanted, request_timeout=seconds_left(deadline))
            found = [self._requests.wait(future, seconds_left(deadline)).timestamp for future in futures.values()]
        except KafkaException:
            return None
        newest: int = max(found)
        return newest if newest >= 0 else None


class _ApiVersions(logging.Handler):
    """Collects the versions of requests from the log lines of librdkafka."""

    def __init__(self, versions: dict[str, int]) -> None:
        super().__init__()
        self._versions = versions

    def emit(self, record: logging.LogRecord) -> None:
        found = _API.search(record.getMessage())
        if found is not None:
            self._versions[found[1]] = int(found[4])


def require_consumer_protocol(connection: ConnectionConfig, timeout: float) -> None:
    """Raise unless the brokers have the group protocol `consumer`. With others, librdkafka waits without a word.

    Args:
        connection: connection to the brokers.
        timeout: seconds to wait for a broker.

    Raises:
        ConfigurationError: if they lack it.
        KafkaRequestError: if no broker answered in time.
    """
    checks = ClusterChecks(connection)
    try:
        versions = checks.api_versions(timeout)
    finally:
        checks.close()
    missing = lacking(versions, "consumer") if versions else []
    if missing:
        raise ConfigurationError(
            f"group_protocol='consumer' needs brokers of Kafka 4.0 or newer; those at {connection.bootstrap_servers} run "
            f"{release_of(versions)} and lack {', '.join(missing)}: upgrade them, or set group_protocol='classic'"
        )


def lacking(versions: Mapping[str, int], *needs: Need) -> list[str]:
    """Return the requests that brokers lack, with the version that is needed.

    Args:
        versions: result of `ClusterChecks.api_versions`.
        needs: which requests.

    Example:
        >>> lacking({"Metadata": 9, **dict.fromkeys(REQUESTS.keys() - {"Metadata"}, 99)}, "always")
        ['Metadata v10']
    """
    return [
        f"{name} v{request.version}"
        for name, request in REQUESTS.items()
        if request.need in needs and versions.get(name, -1) < request.version
    ]


def requests_table() -> str:
    """Return `REQUESTS` as a table in Markdown, which docs/kafka-versions.md has.

    Example:
        >>> print(requests_table().splitlines()[3])
        | `Metadata` | 10 | topics, their partitions and ids | always |
    """
    needs = {"consumer": '`group_protocol="consumer"`', "login": "SASL"}
    rows = (
        f"| `{name.removesuffix('Request')}` | {each.version} | {each.purpose} | {needs.get(each.need, each.need)} |"
        for name, each in REQUESTS.items()
    )
    return "\n".join(("| request | lowest version | for | sent |", "|---|---|---|---|", *rows))


def has_newer_transactions(versions: Mapping[str, int]) -> bool:
    """Return whether the brokers have the transactions of KIP-890, in which each has an epoch of its own.

    Args:
        versions: result of `ClusterChecks.api_versions`.
    """
    name, version = _TRANSACTIONS_2
    return versions.get(name, -1) >= version


def release_of(versions: Mapping[str, int]) -> str | None:
    """Return the release of Kafka that has these versions of requests, or None if it is not known.

    Args:
        versions: result of `ClusterChecks.api_versions`.

    Example:
        >>> release_of({"Produce": 12}), release_of({"Produce": 13, "TxnOffsetCommit": 6}), release_of({})
        ('4.0', '4.4 or newer', None)
    """
    if not versions:
        return None
    for position, (name, version, release) in enumerate(_RELEASES):
        if versions.get(name, -1) >= version:
            return release if position else f"{release} or newer"
    return "older than 2.8"
