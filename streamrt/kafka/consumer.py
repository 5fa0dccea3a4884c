"""A consumer that connects on first use."""

import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from typing_extensions import Self

from streamrt.config import AutoOffsetReset
from streamrt.errors import ConfigurationError, end_readably
from streamrt.forks import ForkGuard
from streamrt.kafka.client import ErrorCallback, build_client, callback, client_options, log_error_to
from streamrt.kafka.connection import ConnectionConfig, HoldsSecrets
from streamrt.kafka.group_protocol import is_incremental

__all__ = ["AutoOffsetReset", "BaseConsumer", "CommitCallback", "Consumer", "RebalanceCallback"]

CommitCallback = Callable[[KafkaError | None, list[ConfluentTopicPartition]], None]
RebalanceCallback = Callable[[ConfluentConsumer, list[ConfluentTopicPartition]], None]

_LOGGER = logging.getLogger(__name__)
# Joins need a member that gets the same partition numbers of each topic.
_CLASSIC = {"partition.assignment.strategy": "range"}
_INCREMENTAL = {"group.remote.assignor": "range"}
_DEFAULTS = {
    # An offset counts as processed after `store_offsets`, not when the record was returned.
    "enable.auto.offset.store": False,
}


class Consumer(HoldsSecrets):
    """Read records from Kafka; a thin layer over `confluent_kafka.Consumer`.

    The client is created on first use. As a context manager it leaves its group at the end. Use it in one thread,
    because another thread would have to wait for the end of each `poll`. Processes that are forked after the first use
    need consumers of their own: this one refuses them.

    Args:
        broker_address: `host:port`, or a `ConnectionConfig`.
        consumer_group: name of the group; None for a consumer that only uses `assign` and never commits.
        auto_offset_reset: start position without a committed offset: "earliest", "latest", or "error".
        auto_commit_enable: whether stored offsets are committed periodically. Store them with `store_offsets`,
            unless `extra_config` sets `enable.auto.offset.store`.
        logger: logger for the lines of librdkafka.
        error_callback: function of the client's errors; by default they are logged.
        on_commit: function of the outcome of each commit; by default failures are logged.
        extra_config: options of librdkafka; the other parameters override them.
        prepare: function of a topic's name that is called before the subscription, for example to create the topic.

    Raises:
        ConfigurationError: if `auto_offset_reset` is none of the three values.

    Example:
        >>> consumer = Consumer("localhost:9092", "shop", "earliest", auto_commit_enable=False)
        >>> consumer.close()  # nothing was asked of it, so there is nothing to close
    """

    def __init__(
        self,
        broker_address: str | ConnectionConfig,
        consumer_group: str | None,
        auto_offset_reset: AutoOffsetReset,
        auto_commit_enable: bool = True,
        logger: logging.Logger = _LOGGER,
        error_callback: ErrorCallback | None = None,
        on_commit: CommitCallback | None = None,
        extra_config: Mapping[str, Any] | None = None,
        prepare: Callable[[str], None] | None = None,
    ) -> None:
        end_readably()
        if auto_offset_reset not in ("earliest", "latest", "error"):
            raise ConfigurationError(f"auto_offset_reset is {auto_offset_reset!r}: use 'earliest', 'latest' or 'error'")
        self._options = client_options(
            broker_address,
            extra_config,
            logger,
            error_callback,
            defaults={**_DEFAULTS, **(_INCREMENTAL if is_incremental(extra_config or {}) else _CLASSIC)},
            fixed={
                # librdkafka refuses to start without a group, even if nothing is ever committed.
                "group.id": consumer_group or "streamrt-no-group",
                "enable.auto.commit": auto_commit_enable and consumer_group is not None,
                "auto.offset.reset": auto_offset_reset,
                "on_commit": callback(on_commit or _log_failed_commits(logger)),
            },
        )
        self._prepare = prepare
        self._inner: ConfluentConsumer | None = None
        self._fork_guard = ForkGuard()
        self._closed = False

    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group for these topics; this replaces an earlier subscription.

        The callbacks run inside `poll`, `consume` and `close`, in the calling thread.

        Args:
            topics: names of the topics.
            on_assign: function of the assigned partitions.
            on_revoke: function of the partitions, called before they are revoked.
            on_lost: function of the partitions that were already lost; by default `on_revoke` is called.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        callbacks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        given = {name: callback(call) for name, call in callbacks.items() if call is not None}
        client = self._client
        if self._prepare is not None:
            for topic in topics:
                self._prepare(topic)
        client.subscribe(topics, **given)

    def unsubscribe(self) -> None:
        """Leave the group.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        self._client.unsubscribe()

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record or event, and call the callbacks that are due.

        Args:
            timeout: seconds to wait; None waits forever.

        Returns:
            A message, whose `error()` is None for a record and set for an event; or None after the timeout.

        Raises:
            RuntimeError: if the consumer is closed.
        """
        return self._client.poll(-1 if timeout is None else timeout)

    def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Return up to `num_messages` records or events, and call the callbacks that are due.

        Args:
            num_messages: maximum number of messages.
            timeout: seconds to wait for all of them; None waits forever.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        return list(self._client.consume(num_messages, -1 if timeout is None else timeout))

    def store_offsets(
        self, message: Message | None = None, offsets: list[ConfluentTopicPartition] | None = None
    ) -> None:
        """Store offsets for the next commit.

        Args:
            message: store the offset after this record; excludes `offsets`.
            offsets: store these offsets; excludes `message`.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        self._client.store_offsets(**_given_options(message=message, offsets=offsets))

    def commit(
        self,
        message: Message | None = None,
        offsets: list[ConfluentTopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[ConfluentTopicPartition] | None:
        """Commit the offset after a record, given offsets, or the stored ones.

        Args:
            message: commit the offset after this record; excludes `offsets`.
            offsets: commit these offsets; excludes `message`.
            asynchronous: whether to return at once.

        Returns:
            None if asynchronous; otherwise the offsets, each with its `error` or None.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        result: list[ConfluentTopicPartition] | None = self._client.commit(
            asynchronous=asynchronous, **_given_options(message=message, offsets=offsets)
        )
        return result

    def committed(
        self, partitions: list[ConfluentTopicPartition], timeout: float | None = None
    ) -> list[ConfluentTopicPartition]:
        """Return the committed offsets of the group.

        Args:
            partitions: the partitions to look up.
            timeout: seconds to wait for the answer; None waits forever.

        Returns:
            The partitions, each with `offset` and possibly `error`.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        return list(self._client.committed(partitions, -1 if timeout is None else timeout))

    def get_watermark_offsets(
        self, partition: ConfluentTopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return the first offset of a partition and the one after its last record.

        Args:
            partition: the partition to look up.
            timeout: seconds to wait for the answer; None waits forever.
            cached: whether to return the client's cached values.

        Returns:
            The pair, or None after the timeout.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        offsets: tuple[int, int] | None = self._client.get_watermark_offsets(
            partition, timeout=-1 if timeout is None else timeout, cached=cached
        )
        return offsets

    def list_topics(self, topic: str | None = None, timeout: float | None = None) -> Any:
        """Return the metadata of the cluster.

        Args:
            topic: restricts the result to this topic; by default all topics.
            timeout: seconds to wait for the answer; None waits forever.

        Raises:
            KafkaException: if a Kafka error occurred.
        """
        return self._client.list_topics(timeout=-1 if timeout is None else timeout, **_given_options(topic=topic))

    def memberid(self) -> str | None:
        """Return the member id from the group's coordinator, or None.

        Raises:
            RuntimeError: if the consumer is closed.
        """
        member: str | None = self._client.memberid()
        return member

    def offsets_for_times(
        self, partitions: list[ConfluentTopicPartition], timeout: float | None = None
    ) -> list[ConfluentTopicPartition]:
        """Return for each partition the first offset whose timestamp is at or after the given one.

        Args:
            partitions: the partitions to look up, with the timestamps (ms) as their offsets.
            timeout: seconds to wait for the answer; None waits forever.

        Returns:
            The partitions with the offsets found; -1 if all records are older.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        return list(self._client.offsets_for_times(partitions, -1 if timeout is None else timeout))

    def pause(self, partitions: list[ConfluentTopicPartition]) -> None:
        """Stop fetching from these partitions; they stay assigned.

        Args:
            partitions: the partitions to pause.

        Raises:
            KafkaException: if a Kafka error occurred.
        """
        self._client.pause(partitions)

    def resume(self, partitions: list[ConfluentTopicPartition]) -> None:
        """Fetch from these partitions again.

        Args:
            partitions: the partitions to resume.

        Raises:
            KafkaException: if a Kafka error occurred.
        """
        self._client.resume(partitions)

    def position(self, partitions: list[ConfluentTopicPartition]) -> list[ConfluentTopicPartition]:
        """Return, for each partition, the offset after the last returned record.

        Args:
            partitions: the partitions to look up.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        return list(self._client.position(partitions))

    def seek(self, partition: ConfluentTopicPartition) -> None:
        """Continue to read an assigned partition at another offset.

        Args:
            partition: the partition with the offset, absolute or logical such as `OFFSET_BEGINNING`.

        Raises:
            KafkaException: if a Kafka error occurred.
        """
        self._client.seek(partition)

    def assignment(self) -> list[ConfluentTopicPartition]:
        """Return the assigned partitions.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        return list(self._client.assignment())

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Change the credentials of the mechanisms PLAIN and SCRAM, from the next connection on.

        Args:
            username: the user.
            password: the password.
        """
        self._client.set_sasl_credentials(username, password)

    def assign(self, partitions: list[ConfluentTopicPartition]) -> None:
        """Read exactly these partitions.

        Args:
            partitions: the partitions to read, optionally with start offsets.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        self._client.assign(partitions)

    def incremental_assign(self, partitions: list[ConfluentTopicPartition]) -> None:
        """Read these partitions as well.

        Args:
            partitions: the partitions to add.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        self._client.incremental_assign(partitions)

    def incremental_unassign(self, partitions: list[ConfluentTopicPartition]) -> None:
        """Stop reading these partitions.

        Args:
            partitions: the partitions to remove.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        self._client.incremental_unassign(partitions)

    def unassign(self) -> None:
        """Stop reading all partitions.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        self._client.unassign()

    def close(self) -> None:
        """Stop reading, commit the stored offsets if auto commit is on, and leave the group.

        The rebalance callbacks may be called. A second call does nothing.
        """
        if self._inner is not None and self._fork_guard.is_own:
            # Rebalance callbacks run in here and still use the client to commit.
            self._inner.close()
        self._closed = True
        self._inner = None

    def consumer_group_metadata(self) -> Any:
        """Return the group's metadata for `Producer.send_offsets_to_transaction`.

        It can be pickled, and another process with the same version of librdkafka accepts it.
        """
        return self._client.consumer_group_metadata()

    @property
    def _client(self) -> ConfluentConsumer:
        if self._inner is None:
            if self._closed:
                raise RuntimeError("the consumer is closed")
            self._inner, self._fork_guard = build_client(ConfluentConsumer, self._options), ForkGuard()
        self._fork_guard.require_own("this consumer")
        return self._inner

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _given_options(**options: Any) -> dict[str, Any]:
    # confluent-kafka refuses an explicit None for most parameters.
    return {name: value for name, value in options.items() if value is not None}


def _log_failed_commits(logger: logging.Logger) -> CommitCallback:
    log_error = log_error_to(logger)

    def on_commit(error: KafkaError | None, partitions: list[ConfluentTopicPartition]) -> None:
        # _NO_OFFSET: an automatic commit found nothing to commit.
        if error is not None and error.code() != KafkaError._NO_OFFSET:
            log_error(error)
        for partition in partitions:
            if partition.error is not None:
                log_error(partition.error)

    return on_commit


BaseConsumer = Consumer
"""Its name in Quix Streams."""
