"""Producers that tell the outcome of each record: one without, one with transactions."""

import functools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer

from streamrt.config import DEFAULT_TRANSACTION_TIMEOUT_S
from streamrt.errors import ConfigurationError
from streamrt.kafka.client import build_client, client_options, error_in, log_error_to
from streamrt.kafka.connection import ConnectionConfig
from streamrt.kafka.wire import client_headers, client_timestamp
from streamrt.kafka.writing.client_interrupts import keeping_interrupts
from streamrt.kafka.writing.portion import Portion, known_partitions
from streamrt.kafka.writing.record_writer import (
    DEFAULTS,
    FLUSH_PIECE_S,
    lost_record,
    raised_in_callback,
    refused_record,
)
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter
from streamrt.records import Headers

__all__ = ["Delivered", "KafkaSender", "TransactionalSender"]

_LOGGER = logging.getLogger("streamrt.kafka")

Delivered = Callable[[Exception | None, int, int, int], None]
"""Called when a record is delivered or lost: error or None, partition, offset, timestamp in ms. It must not raise, and may be
called in any thread that uses the sender."""

_FULL_QUEUE_WAIT_S = 0.1
_CLOSE_S = 1.0
_POLL_EVERY = 2_000


class KafkaSender:
    """Produce records, and tell the outcome of each.

    Args:
        connection: connection to the brokers.
        options: producer options of librdkafka.

    Raises:
        ConfigurationError: if an option would make it a transactional producer, or librdkafka refuses one.
    """

    def __init__(self, connection: ConnectionConfig, options: Mapping[str, Any] | None = None) -> None:
        if (options or {}).get("transactional.id"):
            raise ConfigurationError("remove the producer option transactional.id: give the writer an id instead")
        self._fatal: KafkaError | None = None
        self._log = log_error_to(_LOGGER)
        self._unpolled = 0
        settings = client_options(connection, options, _LOGGER, self._on_error, defaults=DEFAULTS, fixed={})
        self._producer = build_client(ConfluentProducer, settings)

    @property
    def usable(self) -> bool:
        """Whether it takes more records; after a fatal error a new one is necessary."""
        return self._fatal is None

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        on_delivery: Delivered | None = None,
    ) -> None:
        """Accept a record, and wait while the queue is full.

        Args:
            topic: target topic.
            value: the value; None is a tombstone.
            key: the key.
            timestamp: milliseconds since the Unix epoch; None is the wall clock, and 0 is written as 1.
            headers: the headers.
            partition: the partition; without one, the key decides (murmur2), or chance.
            on_delivery: function of the outcome.

        Raises:
            ProducerError: if the record is refused at once, for example because it is too large.
        """
        options: dict[str, Any] = {"headers": client_headers(headers, topic)} if headers else {}
        options["timestamp"] = client_timestamp(timestamp, topic)
        if on_delivery is not None:
            options["on_delivery"] = functools.partial(_report_delivery, on_delivery)
        while True:
            try:
                self._producer.produce(topic, value, key, -1 if partition is None else partition, **options)
            except BufferError:
                self._serve_callbacks(self._producer.poll, _FULL_QUEUE_WAIT_S)
            except KafkaException as error:
                raise refused_record(topic, value, key, self._fatal or error_in(error)) from error
            else:
                break
        self._unpolled += 1
        if self._unpolled >= _POLL_EVERY:
            self.poll()

    def produce_all(self, topic: str, portion: Portion) -> None:
        """Accept the records of a portion in their order, and wait while the queue is full.

        Args:
            topic: target topic.
            portion: the records; it is told what becomes of them.

        Raises:
            ProducerError: if a record is refused at once; `portion.accepted` says how many are not.
        """
        while portion.accepted < len(portion):
            refused = portion.offer(self._producer, topic)
            if refused is not None:
                raise portion.refusal(topic, refused[0], self._fatal or refused[1])
            full = portion.accepted < len(portion)
            self._serve_callbacks(self._producer.poll, _FULL_QUEUE_WAIT_S if full else 0.0)

    def partitions(self, topic: str, timeout: float) -> int | None:
        """Return how many partitions a topic has now; the producer knows them from then on.

        Args:
            topic: the topic.
            timeout: seconds to wait.

        Returns:
            None if it does not exist, or brokers do not answer in time.
        """
        return known_partitions(self._producer, topic, timeout)

    def poll(self, timeout: float = 0.0) -> None:
        """Call `on_delivery` of records whose outcome is known.

        Args:
            timeout: seconds to wait for one.
        """
        self._unpolled = 0
        self._serve_callbacks(self._producer.poll, timeout)

    def flush(self, timeout: float) -> int:
        """Wait until all records are delivered or lost.

        Args:
            timeout: seconds to wait.

        Returns:
            How many are neither.
        """
        self._unpolled = 0
        deadline = time.monotonic() + timeout
        with keeping_interrupts():
            while self._serve_callbacks(
                self._producer.flush, min(FLUSH_PIECE_S, max(0.0, deadline - time.monotonic()))
            ):
                if time.monotonic() >= deadline:
                    break
        return len(self._producer)

    def commit(self) -> None:
        """There is no transaction."""

    def abort(self) -> None:
        """There is no transaction."""

    def close(self) -> None:
        """Drop what was not delivered, and close the connections."""
        self._producer.purge()
        self.flush(_CLOSE_S)

    def _serve_callbacks(self, call: Callable[[float], int], timeout: float) -> int:
        try:
            return call(timeout)
        except (KafkaException, SystemError) as error:
            self._on_error(raised_in_callback(error))
            return len(self._producer)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = self._fatal or error
        self._log(error)


class TransactionalSender:
    """Produce records in transactions, and tell the outcome of each; see `KafkaTransactionalWriter`.

    Args:
        connection: connection to the brokers.
        transactional_id: id under which one sender at a time can commit. Earlier ones are fenced when this one is made.
        options: producer options of librdkafka.
        timeout: seconds to wait for the id.

    Raises:
        ConfigurationError: if an option contradicts transactions, or the brokers refuse the transaction timeout.
        TransactionError: if the id was not acquired.
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        transactional_id: str,
        options: Mapping[str, Any] | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._writer = KafkaTransactionalWriter(
            connection,
            transactional_id,
            # No offsets are committed.
            "",
            options,
            transaction_timeout_s=DEFAULT_TRANSACTION_TIMEOUT_S,
            reports_deliveries=True,
        )
        try:
            self._writer.init(timeout)
        except BaseException:
            self._writer.close()
            raise

    @property
    def usable(self) -> bool:
        """Whether a transaction may continue or begin; if not, a new sender is necessary."""
        return self._writer.usable

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        on_delivery: Delivered | None = None,
    ) -> None:
        """Add a record to the transaction, and begin one if none is open; see `KafkaSender.produce`.

        Raises:
            ProducerError: if the record is refused at once; the transaction goes on without it.
            TransactionError: if the transaction cannot be committed any more.
        """
        self._writer.produce(
            topic,
            value,
            key,
            timestamp,
            client_headers(headers, topic),
            -1 if partition is None else partition,
            None if on_delivery is None else functools.partial(_report_delivery, on_delivery),
        )

    def produce_all(self, topic: str, portion: Portion) -> None:
        """Add the records of a portion to the transaction; see `KafkaSender.produce_all`.

        Raises:
            ProducerError: if a record is refused at once; the transaction goes on without it.
            TransactionError: if the transaction cannot be committed any more.
        """
        self._writer.produce_all(topic, portion)

    def partitions(self, topic: str, timeout: float) -> int | None:
        """Return how many partitions a topic has now; see `KafkaSender.partitions`."""
        return self._writer.partitions(topic, timeout)

    def poll(self, timeout: float = 0.0) -> None:
        """Call `on_delivery` of records whose outcome is known.

        Raises:
            TransactionError: if the transaction cannot be committed any more.
        """
        self._writer.poll(timeout)

    def flush(self, timeout: float) -> int:
        """Wait until all records are delivered or lost; the transaction stays open.

        The wait ends by the timeout of the transaction at the latest.

        Raises:
            ProducerError: if a record was not delivered.
            TransactionError: if the transaction cannot be committed any more.
        """
        for error in self._writer.flush():
            raise error
        return 0

    def commit(self) -> None:
        """Commit the transaction, if one is open.

        Raises:
            TransactionError: if it was not committed, or the outcome is unknown.
        """
        self._writer.commit({})

    def abort(self) -> None:
        """Abort the transaction, if one is open. It never raises."""
        self._writer.abort()

    def close(self) -> None:
        """Abort an open transaction, and close the connections. It never raises."""
        self._writer.close()


def _report_delivery(on_delivery: Delivered, error: KafkaError | None, message: Message) -> None:
    if error is not None:
        on_delivery(lost_record(message, error), -1, -1, -1)
        return
    partition, offset = message.partition(), message.offset()
    on_delivery(None, -1 if partition is None else partition, -1 if offset is None else offset, message.timestamp()[1])
