"""Reads an offset range of one partition, fast and completely.

Progress is measured by position, not by the number of records: transaction markers, records of aborted transactions and
records removed by compaction also occupy offsets. When there is nothing more to read, the client reports its position
in an "end of partition" event.
"""

import abc
import contextlib
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ConfluentTopicPartition

from streamrt.errors import InvalidOperationError
from streamrt.kafka.client import KafkaRequestError, build_client, client_options, is_retriable
from streamrt.kafka.cluster.admin import TopicAdmin
from streamrt.kafka.cluster.topic_ids import confirmed_ids
from streamrt.kafka.connection import ConnectionConfig
from streamrt.records import TopicPartition

__all__ = [
    "EVENTS_NOT_OURS",
    "FIXED",
    "LARGEST_ANSWER",
    "LOST",
    "NO_GROUP",
    "PartitionReader",
    "bounds_of",
    "current_id",
    "ends_of",
    "look_up",
    "lost_text",
    "unreadable_text",
]

logger = logging.getLogger("streamrt.kafka")

LARGEST_ANSWER = 2_000_000_000
"""Maximum size of a broker's answer in bytes. It must have room for one record, because librdkafka requests a larger
record again and again. librdkafka's default is 100 MB, and brokers accept larger records from producers."""

_DEFAULTS: Mapping[str, Any] = {
    # Time for which brokers hold a request without data. The end of a partition costs this time, and so does the change
    # to another partition, because a connection serves such requests one after the other.
    "fetch.wait.max.ms": 5,
    # With librdkafka's default of 1 s, reading stops whenever the queue is full: 250,000 records/s instead of 1.2
    # million.
    "fetch.queue.backoff.ms": 2,
    "queued.min.messages": 100_000,
    "max.partition.fetch.bytes": 8 * 1024 * 1024,
    "receive.message.max.bytes": LARGEST_ANSWER,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 2_000,
    "topic.metadata.refresh.fast.interval.ms": 20,
}
NO_GROUP = "streamrt-no-group"
"""Name of a group: librdkafka requires one, even if nothing is ever committed."""

FIXED: Mapping[str, Any] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}
_BATCH = 10_000
_POLL_S = 0.2
_WARN_S = 1.0
_LOOK_S = 5.0
_GLANCE_S = 2.0
"""Time limit of a request that may hold up a task."""
LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._NO_OFFSET})
_ADVICE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "it no longer exists",
    KafkaError._UNKNOWN_TOPIC: "it no longer exists",
    KafkaError._UNKNOWN_PARTITION: "it no longer exists",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user READ on the topic",
}
# Events of consumer groups; readers are in no group.
EVENTS_NOT_OURS = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE})


def unreadable_text(what: str, partition: TopicPartition, position: int, error: KafkaError) -> str:
    """Return the error text for a partition that brokers refuse to serve."""
    advice = _ADVICE.get(error.code())
    text = f"the {what} {partition} could not be read at offset {position}: {error.str()} ({error.name()})"
    return f"{text}; {advice}" if advice else text


def lost_text(connection: ConnectionConfig, what: str, partition: TopicPartition, position: int, advice: str) -> str:
    """Return the error text for an offset that no longer exists, with the available range from the brokers."""
    try:
        low, high = bounds_of(connection, partition)
        now = f"it has offsets {low} to {high}"
    except KafkaRequestError as error:
        now = str(error)
    return (
        f"offset {position} of the {what} {partition} no longer exists ({now}): records were deleted, by retention or "
        f"manually, or a broker lost them; {advice}"
    )


def bounds_of(connection: ConnectionConfig, partition: TopicPartition) -> tuple[int, int]:
    """Return the current first offset and high watermark of a partition.

    Raises:
        KafkaRequestError: if the brokers refuse or do not answer.
    """
    with contextlib.closing(TopicAdmin(connection, logger)) as admin:
        return admin.bounds(partition, _LOOK_S)


def ends_of(
    connection: ConnectionConfig, partitions: Collection[TopicPartition], *, committed: bool
) -> dict[TopicPartition, int]:
    """Return the offsets up to which partitions can be read now.

    Args:
        connection: connection to the brokers.
        partitions: the partitions.
        committed: whether only committed records are read, so that open transactions hold ends back.

    Raises:
        KafkaRequestError: if the brokers refuse or do not answer.
    """
    with contextlib.closing(TopicAdmin(connection, logger)) as admin:
        if committed:
            return admin.offset_ends(partitions, (), _GLANCE_S)[0]
        return admin.offset_ends((), partitions, _GLANCE_S)[1]


def current_id(connection: ConnectionConfig, topic: str, before: str | None) -> str | None:
    """Return the current id of a topic; None if it does not exist. One that differs from the former one is confirmed.

    Raises:
        KafkaRequestError: if the brokers refuse or do not answer.
    """
    with contextlib.closing(TopicAdmin(connection, logger)) as admin:
        return confirmed_ids(admin.topic_ids, {topic: before}, timeout=_LOOK_S)[topic]


def look_up(client: ConfluentConsumer, topics: Iterable[str], known: set[str], timeout_s: float = _LOOK_S) -> None:
    """Make a client request the metadata of topics that are new to it.

    Otherwise it starts to fetch each topic but the first one only after a second.

    Args:
        client: the client.
        topics: topics whose partitions will be assigned.
        known: topics that were requested before; updated by this function.
        timeout_s: seconds to wait for the answers; a failed request has no later effect.
    """
    deadline = time.monotonic() + timeout_s
    for topic in sorted(set(topics) - known):
        with contextlib.suppress(KafkaException):
            client.list_topics(topic, timeout=max(0.0, deadline - time.monotonic()))
            known.add(topic)


class PartitionReader(abc.ABC):
    """Read committed records of partitions, one partition after the other; subclasses define the kind of topic.

    The client is created on first use and kept. Use a reader in one thread; several readers are independent.

    Args:
        connection: connection to the brokers.
        options: consumer options, named as in librdkafka; those that define what is read cannot be changed.
    """

    _what: ClassVar[str]
    _lost_advice: ClassVar[str]
    _defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, connection: ConnectionConfig, options: Mapping[str, Any] | None = None) -> None:
        self._connection = connection
        self._options = client_options(
            connection,
            options,
            logger,
            self._on_client_error,
            defaults={**_DEFAULTS, **self._defaults, "group.id": NO_GROUP},
            fixed={**FIXED, "isolation.level": "read_committed"},
        )
        self._inner: ConfluentConsumer | None = None
        self._reads = 0
        self._looked_up: set[str] = set()

    @abc.abstractmethod
    def _make_failure(self, message: str) -> Exception:
        """Return the error that ends a read."""

    def close(self) -> None:
        """Close the connections. A closed reader reconnects when it is used."""
        inner, self._inner = self._inner, None
        self._reads += 1
        self._looked_up.clear()
        if inner is not None:
            inner.close()

    def _read_messages(
        self, partition: TopicPartition, start: int, end: int, timeout_s: float
    ) -> Iterator[tuple[list[Message], int]]:
        """Yield consecutive records, and the offset up to which the partition has been read."""
        if start >= end:
            return
        self._reads += 1
        mine = self._reads
        client = self._client
        look_up(client, [partition.topic], self._looked_up)
        client.assign([ConfluentTopicPartition(partition.topic, partition.partition, start)])
        try:
            wait = _Wait(self._what, partition, start, end, timeout_s)
            while wait.position < end:
                found = self._drain_client(client)
                # A KafkaError is truthy; records have None.
                if any(map(Message.error, found)):
                    for message in found:
                        self._handle_event(message, wait)
                    found = [message for message in found if message.error() is None]
                records = wait.accept(found)
                if records or wait.position >= end:
                    yield records, wait.position
                    if mine != self._reads:
                        raise InvalidOperationError(
                            f"the read of {partition} was cancelled, because its reader was closed or started another read"
                        )
                    wait.restart()
                elif wait.expired:
                    # The client may be what is stuck (librdkafka's issue 5153): the next read has a new one.
                    self.close()
                    raise self._make_stuck_error(wait)
        finally:
            if mine == self._reads:
                client.unassign()

    @property
    def _client(self) -> ConfluentConsumer:
        if self._inner is None:
            self._inner = build_client(ConfluentConsumer, self._options)
        return self._inner

    @staticmethod
    def _drain_client(client: ConfluentConsumer) -> list[Message]:
        """Return the available messages; wait briefly if there are none."""
        # consume() on its own would wait for the maximum number of messages.
        message = client.poll(_POLL_S)
        found = [] if message is None else [message]
        while found and len(found) < _BATCH:
            more = client.consume(_BATCH - len(found), 0)
            if not more:
                break
            found += more
        return found

    def _handle_event(self, message: Message, wait: "_Wait") -> None:
        """Handle an event."""
        error = message.error()
        if error is None:
            return
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            if (message.topic(), message.partition()) == wait.partition:
                wait.nothing_until(message.offset())
        elif code in LOST:
            raise self._make_lost_error(wait)
        elif code in EVENTS_NOT_OURS:
            logger.debug("Reader of %s: %s", wait.partition, error.str())
        elif is_retriable(error) and not error.fatal():
            self._on_client_error(error)
        else:
            raise self._make_failure(unreadable_text(self._what, wait.partition, wait.position, error))

    def _on_client_error(self, error: KafkaError) -> None:
        logger.debug("Reader: %s", error.str())

    def _make_lost_error(self, wait: "_Wait") -> Exception:
        return self._make_failure(
            lost_text(self._connection, self._what, wait.partition, wait.position, self._lost_advice)
        )

    def _make_stuck_error(self, wait: "_Wait") -> Exception:
        what = (
            f"the {self._what} {wait.partition} was read up to offset {wait.position} of {wait.end}, without progress "
        )
        what += f"for {wait.timeout_s:g} s"
        try:
            _, high = bounds_of(self._connection, wait.partition)
        except KafkaRequestError as error:
            return self._make_failure(f"{what}: {error}; try again when the topic and its brokers are available")
        if high < wait.end:
            return self._make_failure(
                f"{what}: it now ends at {high}, so brokers have lost records; check for an unclean leader election"
            )
        if wait.blocked:
            return self._make_failure(
                f"{what}: a transaction of another producer is still open there; find it with kafka-transactions.sh "
                "find-hanging, and abort it or wait for its transaction.timeout.ms"
            )
        return self._make_failure(f"{what}: its leader sends no data; check the logs of the brokers")


class _Wait:
    """The position of a read, and the time since its last progress."""

    def __init__(self, what: str, partition: TopicPartition, start: int, end: int, timeout_s: float) -> None:
        self.what = what
        self.partition = partition
        self.position = start
        self.end = end
        self.timeout_s = timeout_s
        self.blocked = False
        self._warned = False
        self._moved_at = time.monotonic()

    @property
    def expired(self) -> bool:
        """Whether the time without progress exceeds the timeout; warns once before that."""
        waited_s = time.monotonic() - self._moved_at
        if self.blocked and not self._warned and waited_s >= min(_WARN_S, self.timeout_s / 2):
            self._warned = True
            logger.warning(
                "The %s %s can only be read up to offset %d (its last stable offset), but it ends at %d: a "
                "transaction of another producer is open; it ends at the latest after its transaction.timeout.ms. Waiting "
                "up to %g s for it",
                self.what,
                self.partition,
                self.position,
                self.end,
                self.timeout_s,
            )
        return waited_s >= self.timeout_s

    def restart(self) -> None:
        """Restart the time without progress; the time in which the caller processed a batch does not count."""
        self._moved_at = time.monotonic()

    def accept(self, messages: list[Message]) -> list[Message]:
        """Move past records; return those that are in the range."""
        if not messages:
            return messages
        # Records of a previous read may still be in the client's queue.
        topics, partitions = set(map(Message.topic, messages)), set(map(Message.partition, messages))
        if topics != {self.partition.topic} or partitions != {self.partition.partition}:
            messages = [message for message in messages if (message.topic(), message.partition()) == self.partition]
        while messages and messages[-1].offset() >= self.end:
            # A record after the range proves that the range is read.
            self._move_to(self.end)
            messages.pop()
        if messages:
            self._move_to(messages[-1].offset() + 1)
        return messages

    def nothing_until(self, offset: int) -> None:
        """Note that there are no more records below `offset`, and no readable ones from there on."""
        self._move_to(min(offset, self.end))
        self.blocked = offset < self.end

    def _move_to(self, position: int) -> None:
        if position > self.position:
            self.position = position
            self.blocked = False
            self._moved_at = time.monotonic()
