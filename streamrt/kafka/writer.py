"""The producer of tasks: made for many records, and for knowing for certain which of them were delivered."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer

from streamrt.errors import ProducerError
from streamrt.kafka.client import KafkaRequestError, build_client, client_options, error_in
from streamrt.kafka.connection import ConnectionConfig
from streamrt.models import Headers

logger = logging.getLogger("streamrt.kafka")

DEFAULTS: Mapping[str, Any] = {
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "linger.ms": 5,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 262_144,
}
_HURRY_S = 0.001
"""How long a writer that is in a hurry waits for answers, in seconds.

librdkafka sends what lingers as long as somebody waits in its flush(), and it counts milliseconds. Measured beside the broker
on two cores, from the producer of an input to the consumer of the output:

| | median at 100 records/s | CPU for a million records at 20,000 records/s |
|---|---|---|
| linger.ms=5 | 6.4 ms | 5.4 s |
| linger.ms=1, 0.5, or 0.2 | 2.4 ms | 6.6 s |
| linger.ms=0 | 1.5 ms | 22 s: the client's thread wakes up for each record |
| linger.ms=5, and `hurry` when there is no more input | 1.5 ms | 6.0 s |

What a writer that never runs out of input can do is best with 5 ms, too: 446,000 records/s, and 389,000 without any.
"""
_LINGER = frozenset({"linger.ms", "queue.buffering.max.ms"})
_POLL_EVERY = 2_000
_FULL_QUEUE_WAIT_S = 0.1

_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
# What is wrong with the record or its topic: sent again, it is refused again.
_REFUSED_BY_BROKERS = _TOO_LARGE | {
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
# What librdkafka says of the records that a fatal error takes along, or a producer that must begin a new sequence. Nothing is
# wrong with any of them.
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
    """A producer met a fatal error, and records that it had taken may be lost; the work is tried again with a new producer.

    It is about no single record, so nothing can be skipped for it.
    """


class KafkaRecordWriter:
    """Produces records and collects the errors of those that were not delivered.

    Args:
        connection: how to reach the brokers.
        options: producer options of the user, in librdkafka's words.
        poll_timeout: seconds to wait for events whenever the producer is polled.
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
        # Not if the user says how long records shall linger.
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
        """Whether the producer met a fatal error and must be replaced. What it had taken and did not deliver is lost."""
        return self._fatal is not None

    @property
    def delivered(self) -> bool:
        """Whether each record that was taken is delivered, or has failed, as the next `flush` tells."""
        return len(self._producer) == 0

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        """Take a record for delivery. A full queue is waited for.

        Args:
            topic: where to.
            value: the value; None is a tombstone.
            key: the key.
            timestamp: milliseconds since the Unix epoch; 0 is the wall clock.
            headers: the headers.
            partition: the partition; -1 lets the key decide.

        Raises:
            ProducerError: if the record is refused at once, such as one that is too large.
            WriterFailedError: if the producer met a fatal error.
        """
        while True:
            try:
                self._producer.produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
            except BufferError:
                self._serve(self._producer.poll, _FULL_QUEUE_WAIT_S)
            except KafkaException as error:
                reason = error_in(error)
                if reason.code() == KafkaError._FATAL:
                    # What it was is told by an event.
                    self._fatal = self._fatal or reason
                    self._serve(self._producer.poll, 0.0)
                    raise self._failure() from error
                raise refused_record(topic, value, key, reason) from error
            else:
                break
        self._unpolled += 1
        if self._unpolled >= _POLL_EVERY:
            self._unpolled, self._hurried = 0, -1
            self._serve(self._producer.poll, self._poll_timeout)

    def hurry(self) -> None:
        """Send what was taken now, in place of waiting for more to send with it; returns within a few milliseconds.

        Call it when there is nothing more to do. It does nothing where the user has set `linger.ms`.
        """
        if self._hurries and self._unpolled != self._hurried:
            self._hurried = self._unpolled
            self._serve(self._producer.flush, _HURRY_S)

    def flush(self) -> list[Exception]:
        """Wait until each record is delivered or has failed, and return the errors since the last flush.

        librdkafka gives a record up after `message.timeout.ms`, so this ends.

        Raises:
            WriterFailedError: if the producer met a fatal error: which of its records are lost is not known then, because
                reports about them may be lost, too.
        """
        while self._serve(self._producer.flush, 1.0) > 0 and self._fatal is None:
            pass
        if self._fatal is not None:
            raise self._failure()
        self._unpolled = self._hurried = 0
        errors, self._errors = self._errors, []
        return errors

    def close(self) -> None:
        """Drop what is not delivered and let go of the connections."""
        self._producer.purge()
        self._serve(self._producer.flush, 1.0)

    def _serve(self, call: Callable[[float], int], timeout: float) -> int:
        """Call poll() or flush(), and take the fatal error that they may raise."""
        try:
            return call(timeout)
        except (KafkaException, SystemError) as error:
            self._on_client_error(raised_in_callback(error))
            return 1

    def _failure(self) -> WriterFailedError:
        reason = self._fatal or KafkaError(KafkaError._FATAL)
        return WriterFailedError(
            f"the Kafka producer met a fatal error ({reason.str()}), and records may be lost with it",
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
    """Return the fatal error that confluent-kafka raises in poll() and flush() in place of calling `error_cb`.

    If a delivery callback runs in the same call after it, the exception that is under way gets lost, or becomes the cause of
    Python's complaint about it. Then only its being fatal is certain.
    """
    cause = error.__cause__ if isinstance(error, SystemError) else error
    if isinstance(cause, KafkaException):
        return error_in(cause)
    return KafkaError(KafkaError._FATAL, "the client met a fatal error", True)


def refused_record(topic: str, value: bytes | None, key: bytes | None, reason: KafkaError) -> ProducerError:
    """Return the error for a record that the client did not take."""
    size = len(value or b"") + len(key or b"")
    return ProducerError(
        f"a record of {size:,} bytes for topic {topic!r} was refused: {reason.str()} ({reason.name()})"
    )


def lost_record(message: Message, reason: KafkaError) -> ProducerError:
    """Return the error for a record that the client took and could not deliver."""
    topic, code = message.topic(), reason.code()
    text = f"a record for topic {topic!r} was not delivered: {reason.str()} ({reason.name()})"
    if code in _TOO_LARGE:
        text += "; raise max.message.bytes of the topic, or make the records smaller"
    return ProducerError(text, topic, code in _REFUSED_BY_BROKERS)
