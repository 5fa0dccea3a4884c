"""Reads a range of offsets of one partition, fast and to its very end.

The position counts, not the number of records: markers of transactions, records of aborted ones, and what compaction has
removed occupy offsets, too. The client tells where it is when it finds nothing more to read (an "end of partition"
event).
"""

import abc
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ConfluentTopicPartition

from streamrt.errors import InvalidOperationError
from streamrt.kafka.client import KafkaRequestError, build_client, client_options, is_retriable
from streamrt.kafka.connection import ConnectionConfig
from streamrt.kafka.offsets import OffsetRequests
from streamrt.models import TopicPartition

__all__ = [
    "EVENTS_NOT_OURS",
    "FIXED",
    "LARGEST_ANSWER",
    "LOST",
    "NO_GROUP",
    "PartitionReader",
    "bounds_of",
    "look_up",
    "lost_text",
    "unreadable_text",
]

logger = logging.getLogger("streamrt.kafka")

LARGEST_ANSWER = 2_000_000_000
"""Bytes of a broker's answer, in which one record must have room: librdkafka asks for a larger one again and again. By itself
it takes 100 MB, and brokers take more than that from producers."""

_DEFAULTS: Mapping[str, Any] = {
    # How long the brokers hold a request that finds nothing: what the end of a partition costs, and, since a connection
    # serves one such request after the other, the change to another partition.
    "fetch.wait.max.ms": 5,
    # With librdkafka's own 1 s it stands still whenever its queue is full: 250,000 records/s in place of 1.2 million.
    "fetch.queue.backoff.ms": 2,
    "queued.min.messages": 100_000,
    "max.partition.fetch.bytes": 8 * 1024 * 1024,
    "receive.message.max.bytes": LARGEST_ANSWER,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 2_000,
    "topic.metadata.refresh.fast.interval.ms": 20,
}
NO_GROUP = "streamrt-no-group"
"""librdkafka wants a group, even if nothing is ever committed."""

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
LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._NO_OFFSET})
_ADVICE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "it does not exist any more",
    KafkaError._UNKNOWN_TOPIC: "it does not exist any more",
    KafkaError._UNKNOWN_PARTITION: "it does not exist any more",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user READ on the topic",
}
# They concern groups, of which readers are in none.
EVENTS_NOT_OURS = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE})


def unreadable_text(what: str, place: TopicPartition, position: int, error: KafkaError) -> str:
    """Return what to tell when brokers refuse to let a partition be read."""
    advice = _ADVICE.get(error.code())
    text = f"the {what} {place} could not be read at offset {position}: {error.str()} ({error.name()})"
    return f"{text}; {advice}" if advice else text


def lost_text(connection: ConnectionConfig, what: str, place: TopicPartition, position: int, advice: str) -> str:
    """Return what to tell when an offset is not there any more; asks the brokers what they have instead."""
    try:
        low, high = bounds_of(connection, place)
        now = f"it has {low} to {high}"
    except KafkaRequestError as error:
        now = str(error)
    return (
        f"offset {position} of the {what} {place} is not there any more ({now}): records were deleted by its retention or by "
        f"hand, or a broker lost them; {advice}"
    )


def bounds_of(connection: ConnectionConfig, place: TopicPartition) -> tuple[int, int]:
    """Return first offset and high watermark as brokers tell them now.

    Raises:
        KafkaRequestError: if none tells them.
    """
    with contextlib.closing(OffsetRequests(connection, logger)) as requests:
        return requests.bounds(place, _LOOK_S)


def look_up(client: ConfluentConsumer, topics: Iterable[str], known: set[str], timeout_s: float = _LOOK_S) -> None:
    """Have a client ask for topics that are new to it.

    Otherwise it begins to fetch a topic, but for the first one, after a second only.

    Args:
        client: the client.
        topics: what it will be assigned partitions of.
        known: topics that it has asked for before; kept up to date.
        timeout_s: seconds to wait for the answers; brokers that are away make no difference later.
    """
    deadline = time.monotonic() + timeout_s
    for topic in sorted(set(topics) - known):
        with contextlib.suppress(KafkaException):
            client.list_topics(topic, timeout=max(0.0, deadline - time.monotonic()))
            known.add(topic)


class PartitionReader(abc.ABC):
    """Reads committed records of partitions, one partition after the other; subclasses say what they are.

    The client is created on first use and kept. Use a reader in one thread; several readers do not disturb each other.

    Args:
        connection: how to reach the brokers.
        options: consumer options, in librdkafka's words; those that say what is read cannot be changed.
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
    def _failure(self, message: str) -> Exception:
        """Return the error that a read ends with."""

    def close(self) -> None:
        """Let go of the connections. A closed reader connects again when it is used."""
        inner, self._inner = self._inner, None
        self._reads += 1
        self._looked_up.clear()
        if inner is not None:
            inner.close()

    def _messages(
        self, place: TopicPartition, start: int, end: int, timeout_s: float
    ) -> Iterator[tuple[list[Message], int]]:
        """Yield consecutive records, and the offset up to which the partition is read."""
        if start >= end:
            return
        self._reads += 1
        mine = self._reads
        client = self._client
        look_up(client, [place.topic], self._looked_up)
        client.assign([ConfluentTopicPartition(place.topic, place.partition, start)])
        try:
            wait = _Wait(self._what, place, start, end, timeout_s)
            while wait.position < end:
                found = self._take(client)
                # An error is true, and no error is None.
                if any(map(Message.error, found)):
                    for message in found:
                        self._examine(message, wait)
                    found = [message for message in found if message.error() is None]
                records = wait.accept(found)
                if records or wait.position >= end:
                    yield records, wait.position
                    if mine != self._reads:
                        raise InvalidOperationError(
                            f"the read of {place} was given up when the same reader was closed or began another read"
                        )
                    wait.restart()
                elif wait.expired:
                    raise self._stuck(wait)
        finally:
            if mine == self._reads:
                client.unassign()

    @property
    def _client(self) -> ConfluentConsumer:
        if self._inner is None:
            self._inner = build_client(ConfluentConsumer, self._options)
        return self._inner

    @staticmethod
    def _take(client: ConfluentConsumer) -> list[Message]:
        """Return what has arrived; wait a moment if nothing has."""
        # consume() alone would wait until it has all that it may return.
        message = client.poll(_POLL_S)
        found = [] if message is None else [message]
        while found and len(found) < _BATCH:
            more = client.consume(_BATCH - len(found), 0)
            if not more:
                break
            found += more
        return found

    def _examine(self, message: Message, wait: "_Wait") -> None:
        """Handle an event that is no record."""
        error = message.error()
        if error is None:
            return
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            if (message.topic(), message.partition()) == wait.place:
                wait.nothing_until(message.offset())
        elif code in LOST:
            raise self._lost(wait)
        elif code in EVENTS_NOT_OURS:
            logger.debug("Reader of %s: %s", wait.place, error.str())
        elif is_retriable(error) and not error.fatal():
            self._on_client_error(error)
        else:
            raise self._failure(unreadable_text(self._what, wait.place, wait.position, error))

    def _on_client_error(self, error: KafkaError) -> None:
        logger.debug("Reader: %s", error.str())

    def _lost(self, wait: "_Wait") -> Exception:
        return self._failure(lost_text(self._connection, self._what, wait.place, wait.position, self._lost_advice))

    def _stuck(self, wait: "_Wait") -> Exception:
        what = f"the {self._what} {wait.place} was read up to offset {wait.position} of {wait.end}, and no further for "
        what += f"{wait.timeout_s:g} s"
        try:
            _, high = bounds_of(self._connection, wait.place)
        except KafkaRequestError as error:
            return self._failure(f"{what}: {error}; try again when the topic and its brokers are there")
        if high < wait.end:
            return self._failure(
                f"{what}: it now ends at {high}, so brokers have lost records; see whether there was an unclean leader "
                "election"
            )
        if wait.blocked:
            return self._failure(
                f"{what}: a transaction of another producer is still open there; find it with kafka-transactions.sh "
                "find-hanging, and abort it or wait for its transaction.timeout.ms"
            )
        return self._failure(f"{what}: its leader sends nothing; see the log of the brokers")


class _Wait:
    """How far a read has come, and for how long it has not moved."""

    def __init__(self, what: str, place: TopicPartition, start: int, end: int, timeout_s: float) -> None:
        self.what = what
        self.place = place
        self.position = start
        self.end = end
        self.timeout_s = timeout_s
        self.blocked = False
        self._warned = False
        self._moved_at = time.monotonic()

    @property
    def expired(self) -> bool:
        """Whether there was no progress for too long; warns once on the way there."""
        waited_s = time.monotonic() - self._moved_at
        if self.blocked and not self._warned and waited_s >= min(_WARN_S, self.timeout_s / 2):
            self._warned = True
            logger.warning(
                "The %s %s can only be read up to offset %d (its last stable offset), but it ends at %d: a "
                "transaction of another producer is open; it ends at the latest after its transaction.timeout.ms. Waiting "
                "for it, up to %g s",
                self.what,
                self.place,
                self.position,
                self.end,
                self.timeout_s,
            )
        return waited_s >= self.timeout_s

    def restart(self) -> None:
        """Count the time from now: what the caller did with a batch is no standstill."""
        self._moved_at = time.monotonic()

    def accept(self, messages: list[Message]) -> list[Message]:
        """Move past records; return those that are in the range."""
        if not messages:
            return messages
        # Never trust that nothing of a former read is left in the client's queue.
        topics, partitions = set(map(Message.topic, messages)), set(map(Message.partition, messages))
        if topics != {self.place.topic} or partitions != {self.place.partition}:
            messages = [message for message in messages if (message.topic(), message.partition()) == self.place]
        while messages and messages[-1].offset() >= self.end:
            # The range ends before a record that is further on.
            self._move(self.end)
            messages.pop()
        if messages:
            self._move(messages[-1].offset() + 1)
        return messages

    def nothing_until(self, offset: int) -> None:
        """Note that there is no more record below `offset`, and none to be had from there on."""
        self._move(min(offset, self.end))
        self.blocked = offset < self.end

    def _move(self, position: int) -> None:
        if position > self.position:
            self.position = position
            self.blocked = False
            self._moved_at = time.monotonic()
