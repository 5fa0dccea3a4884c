"""The producer of tasks, designed for high throughput and for certainty about which records were delivered."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer

from streamrt.errors import ProducerError
from streamrt.kafka.client import KafkaRequestError, build_client, client_options, error_in
from streamrt.kafka.connection import ConnectionConfig
from streamrt.kafka.wire import client_timestamp
from streamrt.records import Headers
from streamrt.records.timestamps import LATEST_TIMESTAMP_MS

logger = logging.getLogger("streamrt.kafka")

DEFAULTS: Mapping[str, Any] = {
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "linger.ms": 5,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 262_144,
}
_HURRY_S = 0.001
"""Seconds for which `send_pending` waits for answers.

librdkafka sends lingering records while a thread waits in its flush(), and it counts whole milliseconds. Measured on
two cores together with the broker, from the producer of an input to the consumer of the output:

| | median at 100 records/s | CPU for a million records at 20,000 records/s |
|---|---|---|
| linger.ms=5 | 6.4 ms | 5.4 s |
| linger.ms=1, 0.5, or 0.2 | 2.4 ms | 6.6 s |
| linger.ms=0 | 1.5 ms | 22 s: the client's thread wakes up for each record |
| linger.ms=5, and `send_pending` when there is no more input | 1.5 ms | 6.0 s |

The throughput of a writer with continuous input is also best with 5 ms: 446,000 records/s, and 389,000 without any.
"""
FLUSH_PIECE_S = 0.15
"""Seconds of one call of the client's flush(). From 200 ms on, the client looks for signals itself, and may lose the
exception of their handler, such as KeyboardInterrupt."""
_LINGER = frozenset({"linger.ms", "queue.buffering.max.ms"})
_POLL_EVERY = 2_000
_FULL_QUEUE_WAIT_S = 0.1

_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
# Errors of the record or its topic: brokers would refuse the record again.
_REFUSED_BY_BROKERS = _TOO_LARGE | {
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
# librdkafka's errors for valid records that are lost with a fatal error, or because the producer must begin a new
# sequence.
_LOST_WITH_PRODUCER = frozenset(
    {
        KafkaError._FATAL,
        KafkaError._GAPLESS_GUARANTEE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._PURGE_QUEUE,
        KafkaError.DUPLICATE_SEQUENCE_NUMBER,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)


class WriterFailedError(KafkaRequestError):
    """A producer had a fatal error and may have lost accepted records; the work is retried with a new producer.

    The error does not concern a single record, so no record can be skipped for it.
    """


class KafkaRecordWriter:
    """Produce records, and collect the errors of undelivered ones.

    Args:
        connection: connection to the brokers.
        options: producer options of the user, named as in librdkafka.
        poll_timeout: seconds to wait for events in each poll of the producer.
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        options: Mapping[str, Any] | None = None,
        poll_timeout: float = 0.0,
    ) -> None:
        self._poll_timeout = poll_timeout
        self._errors: list[Exception] = []
        self._fatal: KafkaError | None = None
        self._unpolled = 0
        # Not if the user configures how long records linger.
        self._hurries = _LINGER.isdisjoint(options or {})
        self._hurried = 0
        settings = client_options(
            connection,
            options,
            logger,
            self._on_client_error,
            defaults=DEFAULTS,
            # Successful deliveries need no call into Python.
            fixed={"delivery.report.only.error": True, "on_delivery": self._on_delivery},
        )
        self._producer = build_client(ConfluentProducer, settings)

    @property
    def failed(self) -> bool:
        """Whether the producer had a fatal error and must be replaced. Its undelivered records are lost."""
        return self._fatal is not None

    @property
    def delivered(self) -> bool:
        """Whether each accepted record is delivered or has failed; the next `flush` reports failures."""
        if len(self._producer):
            # A delivered record counts until its report is taken from the client, also if no callback is called for it.
            self._serve_callbacks(self._producer.poll, 0.0)
        return len(self._producer) == 0

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        """Accept a record for delivery. If the queue is full, wait.

        Args:
            topic: target topic.
            value: the value; None is a tombstone.
            key: the key.
            timestamp: milliseconds since the Unix epoch; None is the wall clock, and 0 is written as 1.
            headers: the headers.
            partition: the partition; with -1, the key determines it.

        Raises:
            ProducerError: if the record is refused at once, for example because it is too large.
            WriterFailedError: if the producer had a fatal error.
        """
        # `client_timestamp` inlined for most records.
        usual = timestamp is not None and 0 < timestamp <= LATEST_TIMESTAMP_MS
        stamp = timestamp if usual else client_timestamp(timestamp, topic)
        while True:
            try:
                # Arguments by position take two thirds of the time; the two None are callbacks.
                self._producer.produce(topic, value, key, partition, None, None, stamp, headers)
            except BufferError:
                self._serve_callbacks(self._producer.poll, _FULL_QUEUE_WAIT_S)
            except KafkaException as error:
                reason = error_in(error)
                if reason.code() == KafkaError._FATAL:
                    # An event holds the cause.
                    self._fatal = self._fatal or reason
                    self._serve_callbacks(self._producer.poll, 0.0)
                    raise self._make_failure() from error
                raise refused_record(topic, value, key, reason) from error
            else:
                break
        self._unpolled += 1
        if self._unpolled >= _POLL_EVERY:
            self._unpolled, self._hurried = 0, -1
            self._serve_callbacks(self._producer.poll, self._poll_timeout)

    def send_pending(self) -> None:
        """Send lingering records now; returns within a few milliseconds.

        Call it when the input is idle. It does nothing if the user has set `linger.ms`.
        """
        if self._hurries and self._unpolled != self._hurried:
            self._hurried = self._unpolled
            self._serve_callbacks(self._producer.flush, _HURRY_S)

    def flush(self) -> list[Exception]:
        """Wait until each record is delivered or has failed, and return the errors since the last flush.

        The wait ends, because librdkafka gives up a record after `message.timeout.ms`.

        Raises:
            WriterFailedError: if the producer had a fatal error. It is then unknown which records are lost, because
                their delivery reports may also be lost.
        """
        while self._serve_callbacks(self._producer.flush, FLUSH_PIECE_S) > 0 and self._fatal is None:
            pass
        if self._fatal is not None:
            raise self._make_failure()
        self._unpolled = self._hurried = 0
        errors, self._errors = self._errors, []
        return errors

    def close(self) -> None:
        """Close the connections. Records that brokers do not accept within a second are dropped."""
        if self._fatal is None:
            self._serve_callbacks(self._producer.flush, 1.0)
        self._producer.purge()
        self._serve_callbacks(self._producer.flush, 1.0)

    def _serve_callbacks(self, call: Callable[[float], int], timeout: float) -> int:
        """Call poll() or flush(), and note a fatal error that they raise."""
        try:
            return call(timeout)
        except (KafkaException, SystemError) as error:
            self._on_client_error(raised_in_callback(error))
            return 1

    def _make_failure(self) -> WriterFailedError:
        reason = self._fatal or KafkaError(KafkaError._FATAL)
        return WriterFailedError(
            f"the Kafka producer had a fatal error ({reason.str()}) and may have lost records",
            reason.code(),
            True,
        )

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        if error.code() in _LOST_WITH_PRODUCER:
            self._fatal = self._fatal or error
        self._errors.append(lost_record(message, error))

    def _on_client_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
        logger.debug("Kafka producer: %s", error.str())


def raised_in_callback(error: KafkaException | SystemError) -> KafkaError:
    """Return the fatal error that confluent-kafka raises in poll() and flush() instead of calling `error_cb`.

    If a delivery callback runs afterwards in the same call, the pending exception is lost, or becomes the cause of a
    SystemError. Then only the fact that it was fatal is certain. An interrupt that came meanwhile is raised.
    """
    cause = error.__cause__ if isinstance(error, SystemError) else error
    if cause is not None and not isinstance(cause, Exception):
        # Of a signal, and not of the client.
        raise cause
    if isinstance(cause, KafkaException):
        return error_in(cause)
    return KafkaError(KafkaError._FATAL, "the client had a fatal error", True)


def refused_record(topic: str, value: bytes | None, key: bytes | None, reason: KafkaError) -> ProducerError:
    """Return the error for a record that the client refused."""
    size = len(value or b"") + len(key or b"")
    return ProducerError(
        f"a record of {size:,} bytes for topic {topic!r} was refused: {reason.str()} ({reason.name()})"
    )


def lost_record(message: Message, reason: KafkaError) -> ProducerError:
    """Return the error for a record that the client accepted but could not deliver."""
    topic, code = message.topic(), reason.code()
    text = f"a record for topic {topic!r} was not delivered: {reason.str()} ({reason.name()})"
    if code in _TOO_LARGE:
        text += "; raise max.message.bytes of the topic, or make the records smaller"
    return ProducerError(text, topic, code in _REFUSED_BY_BROKERS)
