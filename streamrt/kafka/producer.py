"""A producer that connects on first use."""

import contextlib
import logging
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from typing_extensions import Self

from streamrt.errors import ConfigurationError, InvalidOperationError, ProducerError, end_readably
from streamrt.forks import ForkGuard, in_this_process
from streamrt.kafka.client import ErrorCallback, KafkaRequestError, build_client, callback, client_options
from streamrt.kafka.connection import ConnectionConfig, HoldsSecrets
from streamrt.kafka.wire import client_headers, client_timestamp
from streamrt.records import HeadersMapping, HeaderValue

__all__ = ["DeliveryCallback", "Producer"]

DeliveryCallback = Callable[[KafkaError | None, Message], None]

_LOGGER = logging.getLogger(__name__)
_DEFAULTS = {
    # The partitioner of Java's clients, so that all clients write a key to the same partition.
    "partitioner": "murmur2_random",
    # Without it, a retry of librdkafka can write a record twice or out of order.
    "enable.idempotence": True,
}
_DROPPED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""Errors of records that `purge` or the end of a transaction drops on purpose."""
_LAST_FLUSH_S = 5.0


class Undelivered:
    """Count undelivered records, and log the first one of each kind.

    Args:
        logger: logger for these lines.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._counts: Counter[tuple[str, str]] = Counter()

    def take(self, error: KafkaError | None, message: Message) -> None:
        """Count the outcome of one record."""
        if error is None or error.code() in _DROPPED:
            return
        kind = str(message.topic()), error.str()
        self._counts[kind] += 1
        if self._counts[kind] == 1:
            self._logger.error("a record for topic %s was not delivered: %s", *kind)

    def raise_any(self) -> None:
        """Raise an error for the records that were counted since the last call.

        Raises:
            ProducerError: if any record was not delivered.
        """
        counts, self._counts = self._counts, Counter()
        if not counts:
            return
        number = counts.total()
        kinds = ", ".join(f"{count} for topic {topic} ({why})" for (topic, why), count in counts.items())
        topics = {topic for topic, _ in counts}
        raise ProducerError(
            f"{number} {'record was' if number == 1 else 'records were'} not delivered: {kinds}; pass on_delivery to "
            "produce() for the outcome of each record",
            topics.pop() if len(topics) == 1 else None,
        )


class Producer(HoldsSecrets):
    """Write records to Kafka; a thin layer over `confluent_kafka.Producer`.

    The client is created on first use, so an unused producer costs nothing. As a context manager it flushes at the
    end. When a producer is garbage-collected, it sends its remaining records for up to a few seconds. Processes that are
    forked afterwards need producers of their own: this one refuses them.

    Args:
        broker_address: `host:port`, or a `ConnectionConfig`.
        logger: logger for the lines of librdkafka.
        error_callback: function of the client's errors; by default they are logged.
        extra_config: options of librdkafka; the other parameters override them.
        flush_timeout: default timeout of `flush` in seconds; None waits forever.
        transactional: whether the transaction methods may be used; `extra_config` must contain a
            `transactional.id`.
        prepare: function of a topic's name that is called before its first record, for example to create the topic.

    Raises:
        ConfigurationError: if only one of `transactional` and `transactional.id` is set.

    Example:
        >>> producer = Producer("localhost:9092", extra_config={"linger.ms": 20})
        >>> len(producer)  # nothing was produced, and no broker was asked
        0
    """

    def __init__(
        self,
        broker_address: str | ConnectionConfig,
        logger: logging.Logger = _LOGGER,
        error_callback: ErrorCallback | None = None,
        extra_config: Mapping[str, Any] | None = None,
        flush_timeout: float | None = None,
        transactional: bool = False,
        prepare: Callable[[str], None] | None = None,
    ) -> None:
        end_readably()
        if transactional != bool((extra_config or {}).get("transactional.id")):
            # A generated id would fence no predecessor, because the predecessor used another one.
            raise ConfigurationError("set both transactional=True and a transactional.id in extra_config, or neither")
        self._options = client_options(
            broker_address, extra_config, logger, error_callback, defaults=_DEFAULTS, fixed={}
        )
        self._flush_timeout = -1.0 if flush_timeout is None else flush_timeout
        self._transactional = transactional
        self._prepare = prepare
        self._prepared: set[str] = set()
        self._logger = logger
        self._undelivered = Undelivered(logger)
        self._take = callback(self._undelivered.take)
        self._inner: ConfluentProducer | None = None
        self._fork_guard = ForkGuard()

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        poll_timeout: float = 5.0,
        buffer_error_max_tries: int = 3,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """Pass one record to the client, which sends it in the background.

        Args:
            topic: name of the topic.
            value: the value, or None for a tombstone.
            key: the key.
            headers: pairs of name and value, or a mapping.
            partition: the partition; by default the key determines it.
            timestamp: milliseconds since the Unix epoch; by default now. 0 is written as 1, because librdkafka reads 0 as
                "now".
            poll_timeout: seconds of one attempt to get space when the client's buffer is full.
            buffer_error_max_tries: number of such attempts; 0 does not wait for space.
            on_delivery: function of the outcome, called by a later `poll` or `flush`. Without it, `flush` raises if the
                record is not delivered.

        Raises:
            BufferError: if the buffer is still full after the last attempt.
            KafkaException: if the record is refused, for example because it is too large.
            ProducerError: if the timestamp is negative or too late, or a header has no form in UTF-8.
        """
        client = self._client
        if self._prepare is not None and topic not in self._prepared:
            self._prepare(topic)
            self._prepared.add(topic)
        options: dict[str, Any] = {"on_delivery": self._take if on_delivery is None else callback(on_delivery)}
        if partition is not None:
            options["partition"] = partition
        if timestamp is not None:
            options["timestamp"] = client_timestamp(timestamp, topic)
        if headers is not None:
            options["headers"] = client_headers(headers, topic) or []
        # Serving the callbacks first frees space without a wait.
        client.poll(0)
        try:
            client.produce(topic, value, key, **options)
        except BufferError:
            if buffer_error_max_tries <= 0:
                raise
        else:
            return
        deadline = time.monotonic() + poll_timeout * buffer_error_max_tries
        while True:
            # poll() returns early for every event, even if it frees no space.
            client.poll(max(0.0, min(poll_timeout, deadline - time.monotonic())))
            try:
                client.produce(topic, value, key, **options)
            except BufferError:
                if time.monotonic() >= deadline:
                    raise
            else:
                return

    def poll(self, timeout: float = 0) -> int:
        """Call the callbacks that are due.

        Args:
            timeout: seconds to wait for one; -1 waits forever.

        Returns:
            The number of served events.
        """
        return int(self._client.poll(timeout))

    def flush(self, timeout: float | None = None) -> int:
        """Wait until all records so far are delivered or have failed.

        Args:
            timeout: seconds; None uses the `flush_timeout` of the producer, -1 waits forever.

        Returns:
            The number of records that are still in flight.

        Raises:
            ProducerError: if records without `on_delivery` were not delivered since the last call.
        """
        if self._inner is None:
            return 0
        remaining = int(self._client.flush(self._flush_timeout if timeout is None else timeout))
        self._undelivered.raise_any()
        return remaining

    def list_topics(self, topic: str | None = None, timeout: float | None = None) -> Any:
        """Return the metadata of the cluster.

        Args:
            topic: restricts the result to this topic; by default all topics.
            timeout: seconds to wait for the answer; None waits forever.

        Raises:
            KafkaException: if a Kafka error occurred.
        """
        return self._client.list_topics(
            *(() if topic is None else (topic,)), timeout=-1 if timeout is None else timeout
        )

    def purge(self) -> None:
        """Drop undelivered records; their delivery callbacks are called with an error."""
        if self._inner is not None:
            self._client.purge(in_queue=True, in_flight=True, blocking=True)

    def init_transactions(self, timeout: float | None = None) -> None:
        """Fence the predecessor with the same `transactional.id` and abort the transaction that it left open.

        Args:
            timeout: seconds; None waits forever.

        Raises:
            KafkaException: if it failed; its error says whether the call may be repeated.
        """
        self._transactions.init_transactions(-1 if timeout is None else timeout)

    def begin_transaction(self) -> None:
        """Open a transaction.

        Raises:
            KafkaException: if no transaction can be opened now.
        """
        self._transactions.begin_transaction()

    def send_offsets_to_transaction(
        self,
        positions: list[ConfluentTopicPartition],
        group_metadata: object,
        timeout: float | None = None,
    ) -> None:
        """Add the offsets of a group to the transaction.

        Args:
            positions: the next offsets to read; see `streamrt.kafka.partition_offsets`.
            group_metadata: result of `Consumer.consumer_group_metadata`.
            timeout: seconds; None waits forever.

        Raises:
            KafkaException: if it failed; its error says whether to repeat the call or to abort.
        """
        self._transactions.send_offsets_to_transaction(positions, group_metadata, -1 if timeout is None else timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Flush the records and commit the transaction.

        Args:
            timeout: seconds; None waits forever.

        Raises:
            KafkaException: if it failed; its error says whether to repeat the call or to abort.
        """
        self._transactions.commit_transaction(-1 if timeout is None else timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction; unsent records are dropped.

        Args:
            timeout: seconds; None waits forever.

        Raises:
            KafkaException: if it failed.
        """
        self._transactions.abort_transaction(-1 if timeout is None else timeout)

    @property
    def _client(self) -> ConfluentProducer:
        if self._inner is None:
            self._inner, self._fork_guard = build_client(ConfluentProducer, self._options), ForkGuard()
            if not self._transactional:
                weakref.finalize(self, in_this_process(_send_the_rest), self._inner, self._logger)
        self._fork_guard.require_own("this producer")
        return self._inner

    @property
    def _transactions(self) -> ConfluentProducer:
        if not self._transactional:
            raise InvalidOperationError("this producer is not transactional: create it with transactional=True")
        return self._client

    def __len__(self) -> int:
        return 0 if self._inner is None else len(self._inner)

    def __bool__(self) -> bool:
        # Without this, an idle producer would be falsy, because its length is 0.
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._fork_guard.is_own:
            return
        try:
            remaining = self.flush()
        except ProducerError:
            if exc_value is None:
                raise
            return
        if remaining and exc_value is None:
            raise KafkaRequestError(
                f"{remaining} records were not delivered within {self._flush_timeout:g} s: the brokers "
                "do not answer in time; raise flush_timeout or check the logs of the brokers",
                KafkaError._TIMED_OUT,
                retriable=True,
            )


def _send_the_rest(client: ConfluentProducer, logger: logging.Logger) -> None:
    """Send the remaining records of a producer that is no longer used."""
    remaining = len(client)
    with contextlib.suppress(KafkaException):  # after a fatal error nothing can be sent
        remaining = client.flush(_LAST_FLUSH_S) if remaining else 0
    if remaining:
        logger.error(
            "%d records were not delivered: their producer was dropped before a broker accepted them; call flush(), or "
            "use the producer in a with statement",
            remaining,
        )
