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

from streamrt.errors import ConfigurationError, InvalidOperationError, ProducerError
from streamrt.kafka.client import ErrorCallback, KafkaRequestError, build_client, callback, client_options
from streamrt.kafka.connection import ConnectionConfig, HoldsSecrets
from streamrt.models import HeadersMapping, HeaderValue

__all__ = ["DeliveryCallback", "Producer"]

DeliveryCallback = Callable[[KafkaError | None, Message], None]

_LOGGER = logging.getLogger(__name__)
_DEFAULTS = {
    # The partitioner of Java's clients: a key goes to the same partition whichever client wrote it.
    "partitioner": "murmur2_random",
    # Without it a retry of librdkafka can write a record twice or out of order.
    "enable.idempotence": True,
}
_DROPPED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""How a record fails that `purge`, or the end of a transaction, was to drop."""
_LAST_FLUSH_S = 5.0


class Undelivered:
    """Counts the records that were not delivered, and logs the first one of each kind.

    Args:
        logger: where the log lines go.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._counts: Counter[tuple[str, str]] = Counter()

    def take(self, error: KafkaError | None, message: Message) -> None:
        """Take the outcome of one record."""
        if error is None or error.code() in _DROPPED:
            return
        kind = str(message.topic()), error.str()
        self._counts[kind] += 1
        if self._counts[kind] == 1:
            self._logger.error("a record for topic %s was not delivered: %s", *kind)

    def raise_any(self) -> None:
        """Raise what was counted since the last call.

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
            f"{number} {'record was' if number == 1 else 'records were'} not delivered: {kinds}; with on_delivery, produce() "
            "tells of each record",
            topics.pop() if len(topics) == 1 else None,
        )


class Producer(HoldsSecrets):
    """Writes records to Kafka; a thin layer over `confluent_kafka.Producer`.

    The client is created on first use, so that a producer costs nothing until then. As a context manager it
    flushes at the end. One that is not used any more sends what it still has, for a few seconds.

    Args:
        broker_address: `host:port`, or a `ConnectionConfig`.
        logger: where the log lines of librdkafka go.
        error_callback: called with the errors of the client; by default they are logged.
        extra_config: options of librdkafka; the other parameters win over them.
        flush_timeout: default timeout of `flush` in seconds; None waits for ever.
        transactional: whether the transaction methods may be used; `extra_config` must name a
            `transactional.id`.
        prepare: called with the name of each topic before the first record goes to it, to create it for instance.

    Raises:
        ConfigurationError: if `transactional` and `transactional.id` do not go together.

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
        if transactional != bool((extra_config or {}).get("transactional.id")):
            # A made-up id would fence nobody: the id must be the one that a predecessor used.
            raise ConfigurationError("transactional=True and a transactional.id in extra_config go together")
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
        """Hand one record to the client, which sends it in the background.

        Args:
            topic: name of the topic.
            value: the value, or None for a tombstone.
            key: the key.
            headers: pairs of name and value, or a mapping.
            partition: the partition; by default the key decides.
            timestamp: milliseconds since the Unix epoch; by default now.
            poll_timeout: seconds of one try to get room when the client's buffer is full.
            buffer_error_max_tries: how many such tries there are; 0 does not wait for room.
            on_delivery: called by a later `poll` or `flush` with the outcome. Without it, `flush` raises if the record is not
                delivered.

        Raises:
            BufferError: if the buffer is still full after the last try.
            KafkaException: if the record is refused, because it is too large for example.
        """
        client = self._client
        if self._prepare is not None and topic not in self._prepared:
            self._prepare(topic)
            self._prepared.add(topic)
        options: dict[str, Any] = {"on_delivery": self._take if on_delivery is None else callback(on_delivery)}
        if partition is not None:
            options["partition"] = partition
        if timestamp is not None:
            options["timestamp"] = timestamp
        if headers is not None:
            options["headers"] = dict(headers) if isinstance(headers, Mapping) else list(headers)
        # Serving the callbacks first makes room without a wait.
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
            # It returns early for every event, also for one that makes no room.
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
            timeout: seconds to wait for one; -1 waits for ever.

        Returns:
            How many events were served.
        """
        return int(self._client.poll(timeout))

    def flush(self, timeout: float | None = None) -> int:
        """Wait until the records handed over so far are delivered or have failed.

        Args:
            timeout: seconds; None takes the `flush_timeout` of the producer, -1 waits for ever.

        Returns:
            How many records are still on their way.

        Raises:
            ProducerError: if records that have no `on_delivery` were not delivered since the last call.
        """
        if self._inner is None:
            return 0
        remaining = int(self._inner.flush(self._flush_timeout if timeout is None else timeout))
        self._undelivered.raise_any()
        return remaining

    def purge(self) -> None:
        """Drop what was not sent yet; its delivery callbacks are called with an error."""
        if self._inner is not None:
            self._inner.purge(in_queue=True, in_flight=True, blocking=True)

    def init_transactions(self, timeout: float | None = None) -> None:
        """Fence the predecessor with the same `transactional.id` and abort the transaction that it left open.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            KafkaException: if it failed; its error tells whether the same call may be repeated.
        """
        self._transactions.init_transactions(-1 if timeout is None else timeout)

    def begin_transaction(self) -> None:
        """Open a transaction.

        Raises:
            KafkaException: if none can be opened now.
        """
        self._transactions.begin_transaction()

    def send_offsets_to_transaction(
        self,
        positions: list[ConfluentTopicPartition],
        group_metadata: object,
        timeout: float | None = None,
    ) -> None:
        """Make the offsets of a group part of the transaction.

        Args:
            positions: the offsets, each the next one to read; see `streamrt.kafka.partition_offsets`.
            group_metadata: what `Consumer.consumer_group_metadata` returned.
            timeout: seconds; None waits for ever.

        Raises:
            KafkaException: if it failed; its error tells whether to repeat the call or to abort.
        """
        self._transactions.send_offsets_to_transaction(positions, group_metadata, -1 if timeout is None else timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Flush the records and commit the transaction.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            KafkaException: if it failed; its error tells whether to repeat the call or to abort.
        """
        self._transactions.commit_transaction(-1 if timeout is None else timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction; records that were not sent yet are dropped.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            KafkaException: if it failed.
        """
        self._transactions.abort_transaction(-1 if timeout is None else timeout)

    @property
    def _client(self) -> ConfluentProducer:
        if self._inner is None:
            self._inner = build_client(ConfluentProducer, self._options)
            if not self._transactional:
                weakref.finalize(self, _send_the_rest, self._inner, self._logger)
        return self._inner

    @property
    def _transactions(self) -> ConfluentProducer:
        if not self._transactional:
            raise InvalidOperationError("this producer has no transactions: create it with transactional=True")
        return self._client

    def __len__(self) -> int:
        return 0 if self._inner is None else len(self._inner)

    def __bool__(self) -> bool:
        # An idle producer has length 0 and would count as absent.
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            remaining = self.flush()
        except ProducerError:
            if exc_value is None:
                raise
            return
        if remaining and exc_value is None:
            raise KafkaRequestError(
                f"{remaining} records were not delivered within {self._flush_timeout:g} s: the brokers "
                "do not answer in time; raise flush_timeout or see the log of the brokers",
                KafkaError._TIMED_OUT,
                retriable=True,
            )


def _send_the_rest(client: ConfluentProducer, logger: logging.Logger) -> None:
    """Send what a producer has that nobody uses any more."""
    remaining = len(client)
    with contextlib.suppress(KafkaException):  # after a fatal error nothing can be sent
        remaining = client.flush(_LAST_FLUSH_S) if remaining else 0
    if remaining:
        logger.error(
            "%d records were not delivered: their producer was given up while no broker took them; call flush(), or use the "
            "producer in a with statement",
            remaining,
        )
