"""`KafkaReplicatorSource`: the records of a topic in another Kafka cluster."""

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from streamrt.config import ApplicationConfig, AutoOffsetReset
from streamrt.connectors.argument_checks import checked_choice, checked_function, checked_type
from streamrt.connectors.background import StoppedError, call_in_background
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import ClientSettings
from streamrt.connectors.sources.stateful import StatefulSource
from streamrt.errors import KafkaBrokerUnavailableError, ProducerError, SourceError
from streamrt.kafka import ConnectionConfig, Consumer, KafkaException, KafkaRequestError, TopicAdmin, TopicConfig
from streamrt.kafka.client import is_retriable, partition_offsets
from streamrt.kafka.cluster.topic_ids import confirmed_ids
from streamrt.kafka.connection import as_connection, field_of
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition
from streamrt.secret import Secret
from streamrt.serializers import DeserializerType
from streamrt.topics import Topic

__all__ = ["KafkaReplicatorSource"]

logger = logging.getLogger("streamrt.connectors")

_OWNER = "KafkaReplicatorSource"
_RESETS = ("earliest", "latest", "error")
_REQUEST_S = 15.0
_LONGEST_POLL_S = 0.5
_POLL_RECORDS = 1_000
_FLUSH_RECORDS = 10_000
_LOOK_FOR_PARTITIONS_S = 30.0


class KafkaReplicatorSource(StatefulSource):
    """Copies a topic of another Kafka cluster: keys, values, headers and timestamps as they are.

    The offsets of the other cluster are in the state of the source, written after the copies are delivered: each record is
    copied at least once. With `processing_guarantee="exactly-once"`, copies and offsets are written in one transaction.
    Records keep their partition if both topics have the same number of partitions; else, the key decides. Only committed
    records of transactions are copied. In names of headers, bytes that are not UTF-8 are replaced.

    Args:
        name: name of the source, unique in the application. The offsets belong to it.
        app_config: the settings of the application: `app.config`. Its `commit_interval` and `commit_every` say how often the
            offsets are written.
        topic: name of the topic in the other cluster.
        broker_address: `host:port` of the other cluster, or a `ConnectionConfig` for a login or TLS.
        auto_offset_reset: where to begin at the first start: "earliest", "latest", or "error" to refuse; None for the
            setting of the application.
        consumer_extra_config: options of librdkafka for the consumer.
        consumer_poll_timeout: longest wait for records in seconds; None for the setting of the application.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_consumer_error: function of an error of the consumer that will not pass, None, and a logger: return True to go on.
            By default, the source fails.
        value_deserializer: deserializer of the values in the default topic.
        key_deserializer: deserializer of the keys in the default topic.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

    Raises:
        ConfigurationError: if an argument cannot be used.

    Example:
        ```python
        orders = KafkaReplicatorSource("orders", app.config, "orders", "other-cluster:9092", auto_offset_reset="earliest")
        sdf = app.dataframe(source=orders)
        ```
    """

    def __init__(
        self,
        name: str,
        app_config: ApplicationConfig,
        topic: str,
        broker_address: str | ConnectionConfig,
        auto_offset_reset: AutoOffsetReset | None = "latest",
        consumer_extra_config: Mapping[str, Any] | None = None,
        consumer_poll_timeout: float | None = None,
        shutdown_timeout: float = 10,
        on_consumer_error: Callable[[Exception, Any, logging.Logger], bool] | None = None,
        value_deserializer: DeserializerType = "json",
        key_deserializer: DeserializerType = "bytes",
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        super().__init__(name, shutdown_timeout, on_client_connect_success, on_client_connect_failure)
        checked_type(_OWNER, "app_config", app_config, ApplicationConfig, "the config of the application")
        reset = app_config.auto_offset_reset if auto_offset_reset is None else auto_offset_reset
        checked_choice(_OWNER, "auto_offset_reset", reset, _RESETS)
        wait = app_config.consumer_poll_timeout if consumer_poll_timeout is None else consumer_poll_timeout
        checked_type(_OWNER, "consumer_poll_timeout", wait, int | float, "above 0 seconds", lambda wait: wait > 0)
        checked_function(_OWNER, "on_consumer_error", on_consumer_error, optional=True)
        wanted = "a dict of librdkafka's options"
        checked_type(
            _OWNER, "consumer_extra_config", consumer_extra_config, Mapping, wanted, optional=True, hidden=True
        )
        # The names of the source and of the topic are checked as those of topics.
        self._topic = Topic(topic).name
        self._copy = Topic(name, None, value_deserializer, key_deserializer, "bytes", "bytes")
        connection = as_connection(broker_address)
        self._address = connection.bootstrap_servers
        self._connection = Secret(connection.to_secret_json())
        # Options may be secrets or functions.
        self._options = ClientSettings(_OWNER, consumer_extra_config or {})
        self._reset = reset
        self._poll_s = min(wait, _LONGEST_POLL_S)
        self._flush_s = app_config.commit_interval
        self._flush_records = min(app_config.commit_every or _FLUSH_RECORDS, _FLUSH_RECORDS)
        self._on_consumer_error = on_consumer_error
        self._positions: dict[int, int] = {}
        self._copied = 0
        self._target_count: int | None = None

    def default_topic(self) -> Topic:
        """Return a topic with the name of the source, and as many partitions as the topic in the other cluster.

        Raises:
            SourceError: if that topic does not exist, or its cluster does not answer.
        """
        admin = self._open_admin()
        try:
            return self._copy.with_config(TopicConfig(self._count_partitions(admin), None))
        finally:
            admin.close()

    def setup(self) -> None:
        """Check that the other cluster answers and has the topic.

        Raises:
            SourceError: if it does not.
        """
        self._source_admin = self._open_admin()
        try:
            call_in_background(lambda: self._count_partitions(self._source_admin), lambda: self.running)
        except StoppedError:
            return

    def run(self) -> None:
        """Copy records.

        Raises:
            SourceError: if records cannot be read.
            ProducerError: if they cannot be delivered.
        """
        try:
            known = self.state.get(["topic", self._topic])
            starts = call_in_background(partial(self._find_starts, known), lambda: self.running)
        except StoppedError:
            return
        self._positions = self._choose_starts(*starts)
        # Otherwise, records that arrive before the first flush would be behind the end at the next start.
        self.flush()
        consumer = Consumer(
            self._other_cluster(),
            None,
            # For records that are deleted before they are read: nothing else is lost.
            "error" if self._reset == "error" else "earliest",
            auto_commit_enable=False,
            extra_config=self._options.reveal(),
        )
        try:
            consumer.assign(self._make_assignment(self._positions))
            self._copy_until_stopped(consumer)
        finally:
            # Librdkafka waits for brokers that do not answer.
            try:
                call_in_background(consumer.close, lambda: self.running)
            except StoppedError:
                logger.debug("source %s does not wait for the end of its consumer", self.name)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the copies are delivered, then make the offsets of the other cluster durable.

        Args:
            timeout: seconds, for each of the two; None means 30, -1 means no limit.

        Raises:
            ProducerError: if a record was not delivered, or the changelog was not written, in time.
        """
        for partition, offset in self._positions.items():
            if self.state.get(self._position_key(partition)) != offset:
                self.state.set(self._position_key(partition), offset)
        super().flush(timeout)
        self._copied, self._flushed_at = 0, time.monotonic()

    def _copy_until_stopped(self, consumer: Consumer) -> None:
        looked_at = time.monotonic()
        while self.running:
            try:
                messages = consumer.consume(_POLL_RECORDS, self._poll_s)
            except KafkaException as error:
                self._skip_or_fail(error, "the consumer failed")
                continue
            records = []
            for message in messages:
                if message.error() is None:
                    records.append(message)
                else:
                    self._refuse_error(message.error())
            columns = InputBatch.of(records)
            times = zip(columns.timestamps, columns.timestamp_types, strict=True)
            for message, offset, key, value, (timestamp, kind), headers in zip(
                records,
                columns.offsets,
                columns.keys,
                columns.values,
                times,
                columns.headers or itertools.repeat(None),
                strict=False,
            ):
                self._copy_record(message.partition(), offset, key, value, headers, timestamp if kind else None)
            now = time.monotonic()
            if self._copied and (now - self._flushed_at >= self._flush_s or self._copied >= self._flush_records):
                self.flush()
            if now - looked_at >= _LOOK_FOR_PARTITIONS_S:
                self._look_for_partitions(consumer)
                looked_at = time.monotonic()

    def _refuse_error(self, error: Any) -> None:
        if is_retriable(error) and not error.fatal():
            logger.info("source %s: %s; the consumer tries again", self.name, error.str())
        else:
            self._skip_or_fail(KafkaException(error), "records cannot be read")

    def _copy_record(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None, headers: Any, timestamp: int | None
    ) -> None:
        try:
            self.produce(value, key, headers, self._target_partition(partition, key), timestamp)
        except ProducerError as failure:
            raise ProducerError(
                f"{failure} (the last record that the source {self.name} read is offset {offset} of "
                f"{self._topic}[{partition}])"
            ) from failure
        self._positions[partition] = offset + 1
        self._copied += 1

    def _target_partition(self, partition: int, key: bytes | None) -> int | None:
        """Return the partition of a copy, or None if its key decides."""
        if self._target_count is None or self._target_count == self._source_count:
            return partition
        return partition % self._target_count if key is None else None

    def _skip_or_fail(self, error: Exception, what: str) -> None:
        if self._on_consumer_error is not None and self._on_consumer_error(error, None, logger):
            return
        text = error.args[0].str() if isinstance(error, KafkaException) and error.args else str(error)
        raise SourceError(f"the source {self.name} failed at {self._address}: {what}: {text}") from None

    # -- Positions -----------------------------------------------------------------------------------------------

    def _find_starts(self, known: str | None) -> tuple[str, dict[int, tuple[int, int]]]:
        """Return the id of the topic, and the first and the end offset of each of its partitions.

        Args:
            known: the id that the topic had; another one is confirmed.
        """
        try:
            expected = {self._topic: known or None}
            found = confirmed_ids(self._source_admin.topic_ids, expected, timeout=_REQUEST_S)[self._topic]
            partitions = [
                TopicPartition(self._topic, number) for number in range(self._count_partitions(self._source_admin))
            ]
            bounds = self._source_admin.offset_bounds(partitions, _REQUEST_S)
        except (KafkaRequestError, KafkaBrokerUnavailableError) as error:
            raise self._make_unreachable_error(error) from None
        return found or "", {partition.partition: ends for partition, ends in bounds.items()}

    def _choose_starts(self, topic_id: str, bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return the offsets at which to begin, after noting the topic in the state."""
        known = self.state.get(["topic", self._topic])
        replaced = known not in (None, topic_id)
        if replaced:
            logger.warning(
                "topic %s of %s is another one than at the last start of source %s: it is copied from its beginning",
                self._topic,
                self._address,
                self.name,
            )
        self.state.set(["topic", self._topic], topic_id)
        self._topic_id = topic_id
        self._count_targets(len(bounds))
        return {
            # All records of a partition that was added since the last start are newer than that start.
            number: low if replaced else self._start_of(number, low, high, first=known is None)
            for number, (low, high) in bounds.items()
        }

    def _start_of(self, partition: int, low: int, high: int, first: bool) -> int:
        stored = self.state.get(self._position_key(partition))
        if stored is None:
            if first and self._reset == "error":
                raise SourceError(
                    f"the source {self.name} has no offset of {self._topic}[{partition}] yet, and auto_offset_reset is "
                    "'error'"
                )
            return high if first and self._reset == "latest" else low
        if low <= stored <= high:
            return int(stored)
        logger.warning(
            "source %s had read %s[%d] up to offset %d, but it has the offsets %d to %d: it goes on at the first one",
            self.name,
            self._topic,
            partition,
            stored,
            low,
            high,
        )
        return low

    def _look_for_partitions(self, consumer: Consumer) -> None:
        try:
            topic_id, bounds = call_in_background(partial(self._find_starts, self._topic_id), lambda: self.running)
        except (StoppedError, _NoAnswerError) as error:
            logger.debug("source %s does not look for partitions: %s", self.name, error)
            return
        if topic_id != self._topic_id:
            self._positions = self._choose_starts(topic_id, bounds)
            self.flush()
            consumer.assign(self._make_assignment(self._positions))
            return
        added = {number: low for number, (low, _) in bounds.items() if number not in self._positions}
        if added:
            logger.info("source %s copies %d more partitions of %s", self.name, len(added), self._topic)
            self._positions.update(added)
            self._count_targets(len(bounds))
            self.flush()
            consumer.incremental_assign(self._make_assignment(added))

    def _count_targets(self, source_count: int) -> None:
        self._source_count = source_count
        # A producer of a test need not know.
        count = getattr(self.producer, "partition_count", None)
        self._target_count = None if count is None else count(self.producer_topic.name)
        if self._target_count not in (None, source_count):
            logger.warning(
                "topic %s has %d partitions and its copy %s has %d: keys decide on the partitions of source %s",
                self._topic,
                source_count,
                self.producer_topic.name,
                self._target_count,
                self.name,
            )

    def _make_assignment(self, positions: Mapping[int, int]) -> list[Any]:
        return partition_offsets({TopicPartition(self._topic, number): at for number, at in positions.items()})

    def _position_key(self, partition: int) -> list[Any]:
        # With the id, because offsets of a deleted topic say nothing about a new one of its name.
        return [self._topic, self._topic_id, partition]

    # -- The other cluster ---------------------------------------------------------------------------------------

    def _other_cluster(self) -> ConnectionConfig:
        return ConnectionConfig.from_secret_json(self._connection.reveal())

    def _open_admin(self) -> TopicAdmin:
        options = {name: value for name, value in self._options.reveal().items() if field_of(name) is not None}
        return TopicAdmin(self._other_cluster(), extra_config=options)

    def _count_partitions(self, admin: TopicAdmin) -> int:
        try:
            found = admin.inspect_topics([self._topic], _REQUEST_S)[self._topic]
        except (KafkaRequestError, KafkaBrokerUnavailableError) as error:
            raise self._make_unreachable_error(error) from None
        if found is None or not found.num_partitions:
            raise SourceError(f"the cluster at {self._address} has no topic {self._topic} for the source {self.name}")
        return found.num_partitions

    def _make_unreachable_error(self, error: Exception) -> SourceError:
        return _NoAnswerError(f"the source {self.name} gets no answer from the cluster at {self._address}: {error}")


class _NoAnswerError(SourceError):
    """The other cluster does not answer now."""
