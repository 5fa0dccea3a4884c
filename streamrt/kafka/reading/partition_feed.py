"""Reads many partitions at once, each record as soon as it is available.

A partition is in one of three states: not assigned; read, so the client fetches it; or paused, so the client does not.
The feed, not the client, owns positions. A position is the offset after everything that was returned or contains no
record. Pause, seek and reassignment are all the same: unassign the partition, then assign it at the position of the
feed. librdkafka tags fetched records with the number of the assignment, and drops those of an earlier one.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message

from streamrt.errors import InvalidOperationError, OffsetOutOfRangeError
from streamrt.kafka.client import (
    KafkaRequestError,
    build_client,
    client_options,
    is_retriable,
    log_error_to,
    partition_offsets,
    request_error,
)
from streamrt.kafka.cluster.topic_ids import DOUBTFUL
from streamrt.kafka.connection import ConnectionConfig
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.kafka.reading.reader import (
    EVENTS_NOT_OURS,
    FIXED,
    LARGEST_ANSWER,
    LOST,
    NO_GROUP,
    bounds_of,
    current_id,
    ends_of,
    look_up,
    lost_text,
    unreadable_text,
)
from streamrt.kafka.reading.stalled_reads import StalledReads
from streamrt.records import TopicPartition

__all__ = ["MEMBERSHIP_OPTIONS", "PartitionFeed"]

logger = logging.getLogger("streamrt.kafka")

_DEFAULTS: Mapping[str, Any] = {
    "isolation.level": "read_committed",
    # Brokers answer as soon as there is a record, whatever the limit. But an added partition, and the report of an end,
    # wait for the answer to the previous request. An idle feed takes 0.2 % of a core with it, and 0.15 % with 500 ms.
    "fetch.wait.max.ms": 100,
    # With librdkafka's default of 1 s, reading stops whenever the queue is full.
    "fetch.queue.backoff.ms": 2,
    # Records of all partitions together, in memory. Ten times as many do not make reading faster.
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 65_536,
    "receive.message.max.bytes": LARGEST_ANSWER,
    "reconnect.backoff.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
}
# Options of group members; a feed is not a member.
MEMBERSHIP_OPTIONS = frozenset(
    {
        "coordinator.query.interval.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
_ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_WHAT = "input"
_LOST_ADVICE = "check the retention of the topic"


class PartitionFeed:
    """Read committed records of assigned partitions, each from a given offset on.

    A feed is not a group member and commits nothing. The client is created with the first partition and kept. Use a
    feed in one thread.

    Args:
        connection: connection to the brokers.
        options: consumer options of the user, named as in librdkafka. Options for group members are ignored; options
            for the start offset and for commits cannot be changed.
        topic_ids: Kafka's ids of topics, as far as they are known. A partition that brokers did not know for a moment is
            not read on if its topic is another one.
        on_doubt: called with an error after which topics may be other ones of the same names, and with their names.

    Example:
        ```python
        with contextlib.closing(PartitionFeed(connection)) as feed:
            feed.add({TopicPartition("orders", 0): 17})
            feed.resume([TopicPartition("orders", 0)])
            for partition, batch in feed.poll(timeout_s=0.1, records=10_000):
                print(partition, batch.offsets, batch.values)
        ```
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        options: Mapping[str, Any] | None = None,
        topic_ids: Mapping[str, str | None] | None = None,
        on_doubt: Callable[[str, Collection[str]], None] = lambda error, topics: None,
    ) -> None:
        self._connection = connection
        self._topic_ids = topic_ids or {}
        self._on_doubt = on_doubt
        self._log_error = log_error_to(logger)
        self._pending_errors: list[KafkaError] = []
        self._options = client_options(
            connection,
            {name: value for name, value in (options or {}).items() if name not in MEMBERSHIP_OPTIONS},
            logger,
            self._pending_errors.append,
            defaults={**_DEFAULTS, "group.id": NO_GROUP},
            fixed=FIXED,
        )
        self._client: ConfluentConsumer | None = None
        self._looked_up: set[str] = set()
        self._known: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}
        self._failures: dict[TopicPartition, Exception] = {}
        committed = self._options["isolation.level"] != "read_uncommitted"
        self._stalled = StalledReads(partial(ends_of, connection, committed=committed))

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Assign more partitions at these offsets, paused until `resume`. Other partitions are not affected.

        Raises:
            ConfigurationError: if librdkafka refuses the options.
            InvalidOperationError: if a partition is already assigned.
        """
        known = sorted(positions.keys() & self._positions.keys())
        if known:
            raise InvalidOperationError(f"{known[0]} is already assigned to the feed")
        if self._client is None:
            if not positions:
                return
            self._client = build_client(ConfluentConsumer, self._options)
        # Partitions that were added to a topic are as unknown to the client as a new topic, so look the topic up again.
        self._looked_up -= {partition.topic for partition in positions if partition not in self._known}
        self._known.update(positions)
        look_up(self._client, (partition.topic for partition in positions), self._looked_up)
        self._positions.update(positions)
        self._paused.update(positions)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Unassign partitions, and drop their records that were not returned. Other partitions are not affected.

        Raises:
            KafkaRequestError: if the client does not release them.
        """
        going = [partition for partition in dict.fromkeys(partitions) if partition in self._positions]
        self._drop_partitions(self._assigned_partitions(going))
        for partition in going:
            del self._positions[partition]
            self._ends.pop(partition, None)
        self._paused.difference_update(going)

    def poll(self, timeout_s: float, records: int) -> list[tuple[TopicPartition, InputBatch]]:
        """Return the available records, at least one if one arrives in time; records of a partition are in order.

        It returns early, without records, when a partition reaches its end. An error is raised by each call until its
        partition is paused, sought or unassigned.

        Args:
            timeout_s: seconds to wait for the first record; 0 does not wait.
            records: maximum number of records.

        Raises:
            OffsetOutOfRangeError: if the next offset of a partition no longer exists.
            KafkaRequestError: if records cannot be read for another permanent reason.
        """
        deadline = time.monotonic() + timeout_s
        while not self._failures:
            found = self._drain_client(max(0.0, deadline - time.monotonic()), records)
            known = self._ends.copy()
            batches = self._accept_messages(found)
            # With fewer than asked for, nothing more waits in the client.
            if len(found) < records and self._stalled.is_due():
                self._replace_stalled_client()
            # The client counts whole milliseconds, so the rest of the time after an empty poll cannot be waited for.
            if not found or batches or self._ends != known or time.monotonic() >= deadline:
                return batches
        raise next(iter(self._failures.values()))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset, and drop the partition's records that were not returned.

        Raises:
            InvalidOperationError: if the partition is not assigned.
        """
        if partition not in self._positions:
            raise InvalidOperationError(f"cannot seek in {partition}, because it is not assigned to the feed")
        reading = self._assigned_partitions([partition])
        self._drop_partitions(reading)
        self._positions[partition] = offset
        self._ends.pop(partition, None)
        self._assign_partitions(reading)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`. Unassigned partitions are ignored."""
        reading = self._assigned_partitions(partitions)
        self._drop_partitions(reading)
        self._paused.update(reading)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again, from where the pause began.

        Partitions that are not assigned, or not paused, are ignored.
        """
        paused = [partition for partition in dict.fromkeys(partitions) if partition in self._paused]
        self._paused.difference_update(paused)
        self._assign_partitions(paused)

    def ends(self) -> dict[TopicPartition, int]:
        """Return the end offsets, after all transaction markers, of the partitions that are read to their ends."""
        return dict(self._ends)

    def close(self) -> None:
        """Close the connections and drop the assignment. A closed feed reconnects when partitions are added."""
        client, self._client = self._client, None
        self._looked_up.clear()
        self._known.clear()
        self._positions.clear()
        self._paused.clear()
        self._ends.clear()
        self._failures.clear()
        if client is not None:
            client.close()

    def _assigned_partitions(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [
            partition
            for partition in dict.fromkeys(partitions)
            if partition in self._positions and partition not in self._paused
        ]

    def _drop_partitions(self, partitions: list[TopicPartition]) -> None:
        """Unassign partitions from the client, and drop their fetched records."""
        for partition in partitions:
            self._failures.pop(partition, None)
        if partitions and self._client is not None:
            try:
                self._client.incremental_unassign(partition_offsets(dict.fromkeys(partitions, 0)))
            except KafkaException as error:
                raise request_error("the client did not release input partitions", error) from error

    def _assign_partitions(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions to the client at their positions."""
        if partitions and self._client is not None:
            offsets = {partition: self._positions[partition] for partition in partitions}
            try:
                self._client.incremental_assign(partition_offsets(offsets))
            except KafkaException as error:
                raise request_error("the client did not accept input partitions", error) from error

    def _replace_stalled_client(self) -> None:
        """Read on by a new client if this one does not deliver what there is."""
        reading = self._assigned_partitions(self._positions)
        stalled = self._stalled.find_stalled({partition: self._positions[partition] for partition in reading})
        if not stalled or self._client is None:
            return
        partition, position = min(stalled.items())
        more = f" and {len(stalled) - 1} more partitions" if len(stalled) > 1 else ""
        logger.warning(
            "%s%s: there are records from offset %d on, but the Kafka client delivers none; connecting again",
            partition,
            more,
            position,
        )
        self._client.close()
        self._client = build_client(ConfluentConsumer, self._options)
        self._looked_up.clear()
        topics = {partition.topic for partition in reading}
        look_up(self._client, topics, self._looked_up)
        # The former client may have been silent because its topic was deleted, and created again.
        self._on_doubt(f"{partition}: the Kafka client was replaced", topics)
        for partition in reading:
            self._ends.pop(partition, None)
        self._assign_partitions(reading)

    def _drain_client(self, timeout_s: float, most: int) -> list[Message]:
        """Wait for a record or an event; return it with all others that are available."""
        if self._client is None:
            time.sleep(timeout_s)
            return []
        try:
            # consume() on its own would wait for the maximum number of records.
            first = self._client.poll(timeout_s)
            if first is None:
                return []
            return [first, *self._client.consume(most - 1, 0)] if most > 1 else [first]
        except KafkaException as error:
            raise request_error("input records could not be read", error) from error

    def _accept_messages(self, found: list[Message]) -> list[tuple[TopicPartition, InputBatch]]:
        """Move past records and events; return the records by partition."""
        events: list[Message] = []
        # A KafkaError is truthy; records have None.
        if any(map(Message.error, found)):
            events = [message for message in found if message.error() is not None]
            found = [message for message in found if message.error() is None]
        batches = []
        for partition, messages in _by_partition(found):
            position = self._positions.get(partition)
            # Records of a previous assignment may still be in the client's queue.
            if position is None or partition in self._paused:
                continue
            if messages[0].offset() < position:
                messages = [message for message in messages if message.offset() >= position]
                if not messages:
                    continue
            self._positions[partition] = messages[-1].offset() + 1
            self._ends.pop(partition, None)
            batches.append((partition, InputBatch.of(messages)))
        # After the records, so that an outdated end is not used. An error waits until the records are returned.
        for event in events:
            self._handle_event(event)
        pending_errors, self._pending_errors[:] = self._pending_errors[:], []
        for error in pending_errors:
            self._handle_error(error)
        return batches

    def _handle_event(self, event: Message) -> None:
        """Handle an event."""
        error, topic, partition = event.error(), event.topic(), event.partition()
        if error is None:
            return
        if error.code() in DOUBTFUL and topic is not None:
            self._on_doubt(f"{topic}[{partition}]: {error.str()}", [topic])
        if topic is None or partition is None:
            self._handle_error(error)
            return
        input_partition = TopicPartition(topic, partition)
        position = self._positions.get(input_partition)
        if position is None or input_partition in self._paused:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            end = event.offset()
            if end is not None and end >= position:
                # Only transaction markers lie in between.
                self._positions[input_partition] = self._ends[input_partition] = end
        elif error.code() in LOST:
            self._failures[input_partition] = OffsetOutOfRangeError(
                lost_text(self._connection, _WHAT, input_partition, position, _LOST_ADVICE)
            )
        elif is_retriable(error) and not error.fatal():
            self._log_error(error)
        else:
            self._record_failure(input_partition, position, error)

    def _handle_error(self, error: KafkaError) -> None:
        """Handle an error of the client, which names partitions only in its text."""
        if error.code() in EVENTS_NOT_OURS:
            logger.debug("Feed: %s", error.str())
            return
        concerned = [
            partition
            for partition in self._assigned_partitions(self._positions)
            if error.str().startswith(f"{partition.topic} [{partition.partition}]: ")
        ]
        if error.code() in DOUBTFUL:
            self._on_doubt(error.str(), {each.topic for each in concerned or self._positions})
        if is_retriable(error):
            concerned = []
        for partition in concerned:
            self._record_failure(partition, self._positions[partition], error)
        if not concerned:
            self._log_error(error)

    def _record_failure(self, partition: TopicPartition, position: int, error: KafkaError) -> None:
        text, retriable = unreadable_text(_WHAT, partition, position, error), False
        if error.code() in _ABSENT:
            # A starting broker may not know its topics yet.
            before = self._topic_ids.get(partition.topic)
            try:
                bounds_of(self._connection, partition)
                now = current_id(self._connection, partition.topic, before)
            except KafkaRequestError as why:
                retriable = why.retriable
            else:
                if before not in (None, now):
                    text = f"{text}; the topic was deleted and created again: its id was {before} and is {now}"
                    self._failures.setdefault(partition, KafkaRequestError(text, error.code(), retriable=True))
                    return
                logger.debug("%s; the partition exists, so reading it starts again", text)
                self._drop_partitions([partition])
                self._assign_partitions([partition])
                return
        self._failures.setdefault(partition, KafkaRequestError(text, error.code(), retriable))


def _by_partition(messages: list[Message]) -> Iterable[tuple[TopicPartition, list[Message]]]:
    """Return the records of each partition, in order."""
    found: dict[tuple[str, int], list[Message]] = {}
    # The client returns many records of one partition in a row.
    for partition, in_a_row in groupby(messages, Message.partition):
        for topic, records in groupby(in_a_row, Message.topic):
            found.setdefault((topic, partition), []).extend(records)
    return [(TopicPartition(*key), records) for key, records in found.items()]
