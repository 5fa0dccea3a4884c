"""The producer of sources in production."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from streamrt.errors import ProducerError
from streamrt.kafka import ConnectionConfig, KafkaError, KafkaException, Producer
from streamrt.records import HeadersMapping, HeaderValue

__all__ = ["KafkaSourceProducer"]

logger = logging.getLogger("streamrt.sources")


class KafkaSourceProducer:
    """The producer of sources: a Kafka producer that remembers failed deliveries.

    Args:
        connection: connection to the brokers.
        options: the user's producer options, with librdkafka's names.
    """

    def __init__(self, connection: ConnectionConfig, options: Mapping[str, Any] | None = None) -> None:
        self._lost: ProducerError | None = None
        # Successful deliveries do not need a call into Python.
        settings = {"linger.ms": 5, **(options or {}), "delivery.report.only.error": True}
        self._producer = Producer(connection, logger, self._on_client_error, settings)

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        poll_timeout: float = 30.0,
        buffer_error_max_tries: int = 10,
    ) -> None:
        """Accept one record for delivery; may return before the record is delivered.

        Args:
            topic: name of the topic.
            value: the value, or None for a tombstone.
            key: the key.
            headers: pairs of name and value, or a mapping.
            partition: the partition; by default it is chosen by the key.
            timestamp: milliseconds since the Unix epoch; by default now.
            poll_timeout: seconds that one attempt waits for space in the client's buffer.
            buffer_error_max_tries: number of such attempts.

        Raises:
            ProducerError: if this record is refused, or an earlier record was not delivered.
        """
        self._raise_lost()
        try:
            self._producer.produce(
                topic,
                value,
                key,
                headers,
                partition,
                timestamp,
                poll_timeout,
                buffer_error_max_tries,
                self._on_delivery,
            )
        except BufferError as error:
            waited = poll_timeout * buffer_error_max_tries
            raise ProducerError(
                f"a record for topic {topic!r} found no space in the producer's buffer for {waited:g} s: "
                "the brokers accept records more slowly than the source produces them, or not at all"
            ) from error
        except KafkaException as error:
            reason = error.args[0].str() if error.args else str(error)
            raise ProducerError(f"a record for topic {topic!r} was refused: {reason}") from error

    def flush(self, timeout: float | None = None) -> int:
        """Wait until all records are delivered.

        Args:
            timeout: seconds; None and -1 mean no limit.

        Returns:
            Number of records that are still in flight.

        Raises:
            ProducerError: if a record finally failed.
        """
        remaining = self._producer.flush(timeout)
        self._raise_lost()
        return remaining

    def _raise_lost(self) -> None:
        # The error stays: a caller that ignores it must not believe later that all records were delivered.
        if self._lost is not None:
            raise ProducerError(str(self._lost))

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self._lost is None:
            self._lost = ProducerError(
                f"a record for topic {message.topic()!r} was not delivered: {error.str()} ({error.name()})"
            )

    def _on_client_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._lost = self._lost or ProducerError(f"the Kafka producer cannot go on: {error.str()}")
        logger.debug("Kafka producer: %s", error.str())
