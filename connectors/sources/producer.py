"""What sources produce with in production."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from streamrt.errors import ProducerError
from streamrt.kafka import ConnectionConfig, KafkaError, KafkaException, Producer
from streamrt.models import HeadersMapping, HeaderValue

__all__ = ["KafkaSourceProducer"]

logger = logging.getLogger("streamrt.sources")


class KafkaSourceProducer:
    """What sources produce with: a Kafka producer that forgets no failed delivery.

    Args:
        connection: how to reach the brokers.
        options: the user's options for producers, in librdkafka's words.
    """

    def __init__(self, connection: ConnectionConfig, options: Mapping[str, Any] | None = None) -> None:
        self._lost: ProducerError | None = None
        # Successful deliveries need no call into Python.
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
        """Take one record for delivery; may return before it is delivered.

        Args:
            topic: name of the topic.
            value: the value, or None for a tombstone.
            key: the key.
            headers: pairs of name and value, or a mapping.
            partition: the partition; by default the key decides.
            timestamp: milliseconds since the Unix epoch; by default now.
            poll_timeout: seconds of one try to get room when the client's buffer is full.
            buffer_error_max_tries: how many such tries there are.

        Raises:
            ProducerError: if the record is refused, or a record before it was not delivered.
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
                f"a record for topic {topic!r} found no room in the producer for {waited:g} s: "
                "the brokers take records more slowly than the source makes them, or not at all"
            ) from error
        except KafkaException as error:
            reason = error.args[0].str() if error.args else str(error)
            raise ProducerError(f"a record for topic {topic!r} was refused: {reason}") from error

    def flush(self, timeout: float | None = None) -> int:
        """Wait until each record is delivered.

        Args:
            timeout: seconds; None and -1 wait for as long as it takes.

        Returns:
            How many records are still on their way.

        Raises:
            ProducerError: if a record was not delivered for good.
        """
        remaining = self._producer.flush(timeout)
        self._raise_lost()
        return remaining

    def _raise_lost(self) -> None:
        # It stays: who goes on in spite of it must not believe later that all was delivered.
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
