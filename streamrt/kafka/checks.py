"""Questions about a cluster whose answers show whether an application can work with it."""

import logging
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from streamrt.kafka.client import error_in
from streamrt.kafka.connection import ConnectionConfig, HoldsSecrets
from streamrt.kafka.producer import Producer
from streamrt.kafka.requests import AdminRequests, seconds_left
from streamrt.kafka.transactions import TRANSACTIONAL_ID_PREFIX, transactional_id

__all__ = ["REQUIRED_APIS", "ClusterChecks", "Permission", "release_of"]

REQUIRED_APIS: Mapping[str, int] = {"Metadata": 10, "OffsetFetch": 7, "InitProducerId": 3, "TxnOffsetCommit": 3}
"""Requests of StreamRT, and the lowest version that brokers must support: topic ids, stable offsets, and the fencing of
producers by the generation of their group."""

_RELEASES = {13: "4.1", 12: "4.0", 11: "3.8", 10: "3.7", 9: "2.8"}
"""Releases of Kafka, by the version of the Produce request that each was the first to support."""
_API = re.compile(r"ApiKey (\w+) \((\d+)\) Versions (\d+)\.\.(\d+)")
_OFFSETS_TOPIC = "__consumer_offsets"
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
        self._requests.client.poll(0)
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
            _, error = self._requests.settle(future, left_s + 1)
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
            topic = self._requests.client.list_topics(_OFFSETS_TOPIC, timeout=seconds_left(deadline)).topics[
                _OFFSETS_TOPIC
            ]
            if topic.error is not None or not topic.partitions:
                return None
            wanted = {
                ConfluentTopicPartition(_OFFSETS_TOPIC, number): OffsetSpec.max_timestamp()
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


def release_of(versions: Mapping[str, int]) -> str | None:
    """Return the release of Kafka that has these versions of requests, or None if it is not known.

    Args:
        versions: result of `ClusterChecks.api_versions`.

    Example:
        >>> release_of({"Produce": 12}), release_of({"Produce": 14}), release_of({})
        ('4.0', '4.1 or newer', None)
    """
    produce = versions.get("Produce")
    if produce is None:
        return None
    newest = max(_RELEASES)
    if produce > newest:
        return f"{_RELEASES[newest]} or newer"
    return _RELEASES.get(produce, "older than 2.8")
