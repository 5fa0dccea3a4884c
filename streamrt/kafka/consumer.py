"""A consumer that connects on first use."""

import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from typing_extensions import Self

from streamrt.errors import ConfigurationError
from streamrt.kafka.client import ErrorCallback, build_client, callback, client_options, log_error_to
from streamrt.kafka.connection import ConnectionConfig, HoldsSecrets

__all__ = ["AutoOffsetReset", "CommitCallback", "Consumer", "RebalanceCallback"]

AutoOffsetReset = Literal["earliest", "latest", "error"]
"""Where to begin in partitions that have no committed offset."""

CommitCallback = Callable[[KafkaError | None, list[ConfluentTopicPartition]], None]
RebalanceCallback = Callable[[ConfluentConsumer, list[ConfluentTopicPartition]], None]

_LOGGER = logging.getLogger(__name__)
_DEFAULTS = {
    # Records of topics that are joined meet only if a member gets the same partition numbers of each topic.
    "partition.assignment.strategy": "range",
    # An offset counts as processed when `store_offsets` says so, not when the record was handed out.
    "enable.auto.offset.store": False,
}


class Consumer(HoldsSecrets):
    """Reads records from Kafka; a thin layer over `confluent_kafka.Consumer`.

    The client is created on first use. As a context manager it leaves its group at the end. Use it in one thread:
    another one would be kept waiting for as long as a `poll` lasts.

    Args:
        broker_address: `host:port`, or a `ConnectionConfig`.
        consumer_group: name of the group; None for a consumer that only uses `assign` and never commits.
        auto_offset_reset: where to start without a committed offset: "earliest", "latest", or "error".
        auto_commit_enable: whether stored offsets are committed now and then. What is stored is up to
            `store_offsets`, unless `extra_config` sets `enable.auto.offset.store`.
        logger: where the log lines of librdkafka go.
        error_callback: called with the errors of the client; by default they are logged.
        on_commit: called with the outcome of every commit; by default failed ones are logged.
        extra_config: options of librdkafka; the other parameters win over them.
        prepare: called with the name of each topic before it is subscribed to, to create it for instance.

    Raises:
        ConfigurationError: if `auto_offset_reset` is none of the three.

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
        if auto_offset_reset not in ("earliest", "latest", "error"):
            raise ConfigurationError(
                f"auto_offset_reset is {auto_offset_reset!r}: give 'earliest', 'latest' or 'error'"
            )
        self._options = client_options(
            broker_address,
            extra_config,
            logger,
            error_callback,
            defaults=_DEFAULTS,
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
        self._closed = False

    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group for these topics; a former subscription is replaced.

        The callbacks are called by `poll`, `consume` and `close`, in the thread that calls those.

        Args:
            topics: names of the topics.
            on_assign: called with the partitions that were assigned.
            on_revoke: called with the partitions before they are given back.
            on_lost: called with the partitions that are already gone; by default `on_revoke` is called.

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
            timeout: seconds to wait; None waits for ever.

        Returns:
            A message, whose `error()` tells a record (None) from an event; or None after the timeout.

        Raises:
            RuntimeError: if the consumer is closed.
        """
        return self._client.poll(-1 if timeout is None else timeout)

    def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Return up to `num_messages` records or events, and call the callbacks that are due.

        Args:
            num_messages: the most to return.
            timeout: seconds to wait for all of them; None waits for ever.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        return list(self._client.consume(num_messages, -1 if timeout is None else timeout))

    def store_offsets(
        self, message: Message | None = None, offsets: list[ConfluentTopicPartition] | None = None
    ) -> None:
        """Remember offsets for the next commit.

        Args:
            message: the offset after this record; excludes `offsets`.
            offsets: these offsets; excludes `message`.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        self._client.store_offsets(**_given(message=message, offsets=offsets))

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
            None if asynchronous; otherwise the offsets, each with the `error` that it met or None.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        result: list[ConfluentTopicPartition] | None = self._client.commit(
            asynchronous=asynchronous, **_given(message=message, offsets=offsets)
        )
        return result

    def committed(
        self, partitions: list[ConfluentTopicPartition], timeout: float | None = None
    ) -> list[ConfluentTopicPartition]:
        """Return the committed offsets of the group.

        Args:
            partitions: which ones.
            timeout: seconds to wait for the answer; None waits for ever.

        Returns:
            The partitions, each with `offset` and maybe `error`.

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
            partition: which one.
            timeout: seconds to wait for the answer; None waits for ever.
            cached: whether what the client last heard is good enough.

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
            topic: only of this topic; by default of all topics.
            timeout: seconds to wait for the answer; None waits for ever.

        Raises:
            KafkaException: if a Kafka error occurred.
        """
        return self._client.list_topics(timeout=-1 if timeout is None else timeout, **_given(topic=topic))

    def memberid(self) -> str | None:
        """Return the id that the group's coordinator gave this member, or None.

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
            partitions: which ones, with the timestamps (ms) as their offsets.
            timeout: seconds to wait for the answer; None waits for ever.

        Returns:
            The partitions with the offsets found; -1 where all records are older.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        return list(self._client.offsets_for_times(partitions, -1 if timeout is None else timeout))

    def pause(self, partitions: list[ConfluentTopicPartition]) -> None:
        """Stop fetching from these partitions; they stay assigned.

        Args:
            partitions: which ones.

        Raises:
            KafkaException: if a Kafka error occurred.
        """
        self._client.pause(partitions)

    def resume(self, partitions: list[ConfluentTopicPartition]) -> None:
        """Fetch from these partitions again.

        Args:
            partitions: which ones.

        Raises:
            KafkaException: if a Kafka error occurred.
        """
        self._client.resume(partitions)

    def position(self, partitions: list[ConfluentTopicPartition]) -> list[ConfluentTopicPartition]:
        """Return the offsets after the last record that was handed out of each partition.

        Args:
            partitions: which ones.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        return list(self._client.position(partitions))

    def seek(self, partition: ConfluentTopicPartition) -> None:
        """Go on reading an assigned partition at another offset.

        Args:
            partition: the partition with the offset, absolute or logical such as `OFFSET_BEGINNING`.

        Raises:
            KafkaException: if a Kafka error occurred.
        """
        self._client.seek(partition)

    def assignment(self) -> list[ConfluentTopicPartition]:
        """Return the partitions that the consumer reads.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        return list(self._client.assignment())

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use other credentials, for mechanisms PLAIN and SCRAM, from the next connection on.

        Args:
            username: the user.
            password: the password.
        """
        self._client.set_sasl_credentials(username, password)

    def assign(self, partitions: list[ConfluentTopicPartition]) -> None:
        """Read exactly these partitions.

        Args:
            partitions: which ones, with the offsets to start at if they have any.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        self._client.assign(partitions)

    def incremental_assign(self, partitions: list[ConfluentTopicPartition]) -> None:
        """Read these partitions too.

        Args:
            partitions: which ones.

        Raises:
            KafkaException: if a Kafka error occurred.
            RuntimeError: if the consumer is closed.
        """
        self._client.incremental_assign(partitions)

    def incremental_unassign(self, partitions: list[ConfluentTopicPartition]) -> None:
        """Stop reading these partitions.

        Args:
            partitions: which ones.

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
        """Stop reading, commit what is stored if auto commit is on, and leave the group.

        The rebalance callbacks may be called. Closing twice does nothing.
        """
        if self._inner is not None:
            # Rebalance callbacks, called from in here, still use the client: they commit.
            self._inner.close()
        self._closed = True
        self._inner = None

    def consumer_group_metadata(self) -> Any:
        """Return what `Producer.send_offsets_to_transaction` needs to know about the group.

        It pickles, and another process with the same version of librdkafka accepts it.
        """
        return self._client.consumer_group_metadata()

    @property
    def _client(self) -> ConfluentConsumer:
        if self._inner is None:
            if self._closed:
                raise RuntimeError("the consumer is closed")
            self._inner = build_client(ConfluentConsumer, self._options)
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


def _given(**options: Any) -> dict[str, Any]:
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
