"""`KafkaReplicatorSink`: values as records of a topic in another Kafka cluster."""

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from streamrt.connectors.argument_checks import checked_seconds, checked_type
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import ClientSettings
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.errors import (
    ArgumentValueError,
    KafkaBrokerUnavailableError,
    SerializationError,
    SinkBackpressureError,
    SinkError,
    TopicCreationError,
)
from streamrt.kafka import (
    ConnectionConfig,
    KafkaError,
    KafkaException,
    KafkaRequestError,
    Producer,
    TopicAdmin,
    TopicConfig,
)
from streamrt.kafka.client import error_in, is_retriable
from streamrt.kafka.connection import as_connection, field_of
from streamrt.secret import Secret
from streamrt.serializers import MessageField, SerializerType
from streamrt.topics import Topic

__all__ = ["KafkaReplicatorSink"]

logger = logging.getLogger("streamrt.connectors")

_OWNER = "KafkaReplicatorSink"
_REQUEST_S = 15.0
_RETRY_S = 5.0

_Message = tuple[bytes | str | None, bytes | str | None, Any]
"""Value, key and headers, as a producer takes them."""


class KafkaReplicatorSink(BatchingSink):
    """Writes values to a topic of another Kafka cluster, with their keys, headers and timestamps.

    Each value arrives at least once, and in the order of its input partition: with a key in the partition of the key, without
    one in the partition with the number of the input partition (modulo the number of partitions).

    Args:
        broker_address: `host:port` of the other cluster, or a `ConnectionConfig` for a login or TLS.
        topic_name: name of the topic.
        value_serializer: serializer of the values. As "json", a missing value is `null`; as "bytes", it is a tombstone.
        key_serializer: serializer of the keys.
        producer_extra_config: options of librdkafka for the producer. It is idempotent.
        flush_timeout: seconds that the brokers have to accept a batch; then its partition is paused for 5 seconds.
        origin_topic: a topic whose number of partitions, replicas and options a new topic gets.
        auto_create_sink_topic: whether to create the topic if it is missing.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

    Raises:
        ConfigurationError: if an argument cannot be used.

    Example:
        ```python
        sdf.sink(KafkaReplicatorSink("other-cluster:9092", "orders", origin_topic=orders))
        ```
    """

    def __init__(
        self,
        broker_address: str | ConnectionConfig,
        topic_name: str,
        value_serializer: SerializerType = "json",
        key_serializer: SerializerType = "bytes",
        producer_extra_config: Mapping[str, Any] | None = None,
        flush_timeout: float = 10.0,
        origin_topic: Topic | None = None,
        auto_create_sink_topic: bool = True,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        checked_type(_OWNER, "origin_topic", origin_topic, Topic, "a Topic", optional=True)
        checked_type(_OWNER, "auto_create_sink_topic", auto_create_sink_topic, bool, "a bool")
        checked_seconds(_OWNER, "flush_timeout", flush_timeout)
        wanted = "a dict of librdkafka's options"
        checked_type(
            _OWNER, "producer_extra_config", producer_extra_config, Mapping, wanted, optional=True, hidden=True
        )
        options = dict(producer_extra_config or {})
        if "transactional.id" in options or options.get("enable.idempotence") in (False, "false"):
            raise ArgumentValueError(
                f"{_OWNER}(producer_extra_config=...) must not set transactional.id, or turn enable.idempotence "
                "off: the order of records depends on it"
            )
        origin = None if origin_topic is None else origin_topic.config
        self._topic = Topic(
            topic_name,
            origin or TopicConfig(None, None),
            value_serializer=value_serializer,
            key_serializer=key_serializer,
        )
        connection = as_connection(broker_address)
        self._address = connection.bootstrap_servers
        self._connection = Secret(connection.to_secret_json())
        # Options may be secrets or functions.
        self._options = ClientSettings(_OWNER, options)
        self._flush_timeout = flush_timeout
        self._creates = auto_create_sink_topic
        self._count = 0
        self._producer: Producer | None = None

    def setup(self) -> None:
        """Check that the other cluster answers and has the topic; create it if it is missing.

        Raises:
            SinkError: if the cluster does not answer, or has no such topic and may not create it.
        """
        options = self._options.reveal()
        admin = TopicAdmin(
            self._other_cluster(),
            extra_config={name: value for name, value in options.items() if field_of(name) is not None},
        )
        try:
            found = admin.inspect_topics([self._topic.name], _REQUEST_S)[self._topic.name]
            if found is None and self._creates:
                admin.create_topics([self._topic], _REQUEST_S)
                found = admin.inspect_topics([self._topic.name], _REQUEST_S)[self._topic.name]
        except (KafkaRequestError, KafkaBrokerUnavailableError, TopicCreationError) as error:
            raise SinkError(
                f"KafkaReplicatorSink cannot write to topic {self._topic.name} at {self._address}: {error}"
            ) from None
        finally:
            admin.close()
        if found is None or not found.num_partitions:
            raise SinkError(
                f"KafkaReplicatorSink finds no topic {self._topic.name} at {self._address}: create it, or set "
                "auto_create_sink_topic=True"
            )
        self._count = found.num_partitions

    def write(self, batch: SinkBatch) -> None:
        """Produce one batch, and wait until the brokers have it.

        Args:
            batch: the values of one partition.

        Raises:
            SinkBackpressureError: if the brokers do not accept it in time.
            SinkError: if they refuse a record, or a value cannot be serialized.
        """
        # First, because a batch of which a part is sent would be repeated.
        serialize = self._make_serializer()
        messages = [(item, self._serialize_item(serialize, item, batch)) for item in batch]
        if self._producer is None:
            # Successful deliveries need no call into Python.
            options = {"linger.ms": 5, "delivery.report.only.error": True, **self._options.reveal()}
            self._producer = Producer(self._other_cluster(), logger, extra_config=options)
        failures: list[tuple[SinkItem, KafkaError]] = []
        try:
            for item, (value, key, headers) in messages:
                self._producer.produce(
                    self._topic.name,
                    value,
                    key,
                    headers,
                    None if key is not None else batch.partition % self._count,
                    item.timestamp,
                    poll_timeout=self._flush_timeout,
                    buffer_error_max_tries=1,
                    on_delivery=functools.partial(_note_failure, failures, item),
                )
            left = self._producer.flush(self._flush_timeout)
        except BufferError:
            left = len(messages)
        except KafkaException as error:
            failures.append((item, error_in(error)))
            left = 0
        if failures:
            self._drop_producer()
            raise self._make_failure(batch, *failures[0])
        if left:
            self._drop_producer()
            raise SinkBackpressureError(
                _RETRY_S,
                f"{left} records for topic {self._topic.name} at {self._address} were not delivered within "
                f"{self._flush_timeout:g} s",
            )

    def _make_serializer(self) -> Callable[[SinkItem], _Message]:
        """Return the function that serializes an item."""
        topic = self._topic
        if any(each.writes_headers or each.extra_headers for each in (topic.key_serializer, topic.value_serializer)):

            def with_headers(item: SinkItem) -> _Message:
                message = topic.serialize(item.key, item.value, item.headers, item.timestamp)
                return message.value, message.key, message.headers

            return with_headers
        to_value = topic.value_serializer.bind(topic.name, MessageField.VALUE)
        to_key = topic.key_serializer.bind(topic.name, MessageField.KEY)

        def plain(item: SinkItem) -> _Message:
            key, headers = item.key, item.headers
            return to_value(item.value, headers), None if key is None else to_key(key, headers), headers

        return plain

    def _serialize_item(self, serialize: Callable[[SinkItem], _Message], item: SinkItem, batch: SinkBatch) -> _Message:
        try:
            return serialize(item)
        except SerializationError as error:
            raise SinkError(
                f"offset {item.offset} of {batch.topic}[{batch.partition}] cannot be written to topic {self._topic.name} at "
                f"{self._address}: {error}",
                batch.record_of(item),
            ) from error

    def _make_failure(self, batch: SinkBatch, item: SinkItem, error: KafkaError) -> SinkError | SinkBackpressureError:
        where = (
            f"offset {item.offset} of {batch.topic}[{batch.partition}] was not written to topic {self._topic.name} at"
        )
        reason = f"{where} {self._address}: {error.str()} ({error.name()})"
        # Fatal errors end the producer, not the topic: the next one begins again.
        passes = (
            error.fatal() or is_retriable(error) or error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT)
        )
        return SinkBackpressureError(_RETRY_S, reason) if passes else SinkError(reason)

    def close(self) -> None:
        """Drop the producer; what was flushed has arrived."""
        self._drop_producer()

    def _drop_producer(self) -> None:
        """Forget the records that wait: their batch is delivered again, and must not be overtaken by itself."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            # Serves the callbacks of the dropped records.
            producer.poll(0)

    def _other_cluster(self) -> ConnectionConfig:
        return ConnectionConfig.from_secret_json(self._connection.reveal())


def _note_failure(
    failures: list[tuple[SinkItem, KafkaError]], item: SinkItem, error: KafkaError | None, message: Any
) -> None:
    if error is not None:
        failures.append((item, error))
