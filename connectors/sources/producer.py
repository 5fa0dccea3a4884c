"""The producers of sources in production: one that delivers in the background, and one that produces in transactions."""

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamrt.errors import ProducerError, TransactionError
from streamrt.kafka import ConnectionConfig, KafkaError, KafkaException, Producer
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter
from streamrt.records import HeadersMapping, HeaderValue

__all__ = ["KafkaSourceProducer", "TransactionalSourceProducer"]

logger = logging.getLogger("streamrt.sources")

_TRANSACTION_TIMEOUT_S = 300.0


class KafkaSourceProducer:
    """The producer of sources: a Kafka producer that remembers failed deliveries.

    Args:
        connection: connection to the brokers.
        options: the user's producer options, with librdkafka's names.
        may_produce: called before each record; False if another instance of the application runs the source now. None for a
            source that runs in each instance.
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        options: Mapping[str, Any] | None = None,
        may_produce: Callable[[], bool] | None = None,
    ) -> None:
        self._lost: ProducerError | None = None
        self._may_produce = may_produce
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
            ProducerError: if this record is refused, an earlier record was not delivered, or another instance has taken over.
        """
        self._raise_lost()
        if self._may_produce is not None and not self._may_produce():
            raise ProducerError(f"no more records for topic {topic!r}: another instance of the application takes over")
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

    def commit(self) -> None:
        """Do nothing: what was delivered is committed."""

    def close(self, timeout: float) -> None:
        """Wait until all records are delivered, and drop what is not.

        Args:
            timeout: seconds to wait at most.
        """
        with contextlib.suppress(ProducerError):
            self.flush(timeout)

    def partition_count(self, topic: str, timeout: float = 30.0) -> int:
        """Return the number of partitions of a topic.

        Args:
            topic: name of the topic.
            timeout: seconds to wait for the answer.

        Raises:
            ProducerError: if the topic does not exist, or the brokers do not answer in time.
        """
        return _partition_count(self._producer, topic, timeout)

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


class TransactionalSourceProducer:
    """The producer of sources that are exactly once: what it has produced since the last `commit` is committed as one.

    It begins a transaction with the first record after a commit. After a `TransactionError` it is of no further use, and what
    it has produced since the last commit will never be read.

    Args:
        connection: connection to the brokers.
        options: the user's producer options, with librdkafka's names; `transaction.timeout.ms` limits the time between two
            commits: 300 s by default.
        transactional_id: id that belongs to the source; an earlier producer with this id is fenced.

    Raises:
        ConfigurationError: if an option contradicts transactions.
    """

    def __init__(self, connection: ConnectionConfig, options: Mapping[str, Any] | None, transactional_id: str) -> None:
        self._connection = connection
        # A source may produce in another thread than the one that flushes.
        self._lock = threading.Lock()
        self._writer = KafkaTransactionalWriter(
            connection,
            transactional_id,
            "",
            {"linger.ms": 5, **(options or {})},
            transaction_timeout_s=_TRANSACTION_TIMEOUT_S,
        )

    def open(self, topic: str) -> None:
        """Fence earlier producers of the source, and abort what they have not committed.

        Args:
            topic: name of an existing topic.

        Raises:
            ConfigurationError: if the transaction timeout is above the limit of the brokers.
            TransactionError: if the brokers do not answer, or refuse.
        """
        self._writer.init(topic=topic)

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
        """Add one record to the transaction.

        Args:
            topic: name of the topic.
            value: the value, or None for a tombstone.
            key: the key.
            headers: pairs of name and value, or a mapping.
            partition: the partition; by default it is chosen by the key.
            timestamp: milliseconds since the Unix epoch; by default now.
            poll_timeout: has no effect: a record waits for space in the client's buffer until the transaction times out.
            buffer_error_max_tries: likewise.

        Raises:
            ProducerError: if this record is refused.
            TransactionError: if the transaction cannot be committed any more.
        """
        data, raw_key = (part.encode() if isinstance(part, str) else part for part in (value, key))
        pairs = None if headers is None else list(headers.items() if isinstance(headers, Mapping) else headers)
        with self._lock:
            if self._writer.worn_out:
                # A new writer would fence a successor of this source, which knows more than this one.
                raise TransactionError(
                    f"the connection to the brokers was lost when records for topic {topic!r} were committed"
                )
            self._writer.produce(topic, data, raw_key, timestamp, pairs, -1 if partition is None else partition)

    def flush(self, timeout: float | None = None) -> int:
        """Wait until all records are delivered, at most until the transaction times out. Readers do not see them yet.

        Args:
            timeout: has no effect.

        Returns:
            0: no record is in flight.

        Raises:
            TransactionError: if the transaction cannot be committed any more. Its cause is a `ProducerError` if a record
                could not be delivered.
        """
        with self._lock:
            errors = self._writer.flush()
            if errors:
                try:
                    # It knows more: records are also dropped because another producer has fenced this one.
                    self._writer.commit({})
                except TransactionError as failure:
                    raise failure from errors[0]
        return 0

    def commit(self) -> None:
        """Commit what was produced since the last commit, if anything was.

        Raises:
            TransactionError: if it was not committed, or the outcome is unknown.
        """
        with self._lock:
            if not self._writer.worn_out:
                self._writer.commit({})

    def close(self, timeout: float) -> None:
        """Abort what was produced since the last commit.

        Args:
            timeout: has no effect: it takes 10 s at most.
        """
        with self._lock:
            self._writer.close()

    def partition_count(self, topic: str, timeout: float = 30.0) -> int:
        """Return the number of partitions of a topic.

        Args:
            topic: name of the topic.
            timeout: seconds to wait for the answer.

        Raises:
            ProducerError: if the topic does not exist, or the brokers do not answer in time.
        """
        return _partition_count(Producer(self._connection, logger), topic, timeout)


def _partition_count(producer: Producer, topic: str, timeout: float) -> int:
    try:
        found = producer.list_topics(topic, timeout).topics[topic]
    except KafkaException as error:
        reason = error.args[0].str() if error.args else str(error)
        raise ProducerError(f"the partitions of topic {topic!r} could not be counted: {reason}") from error
    if found.error is not None:
        raise ProducerError(f"the partitions of topic {topic!r} could not be counted: {found.error.str()}")
    return len(found.partitions)
