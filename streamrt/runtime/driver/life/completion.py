"""Whether the records below a token are processed and durable, through every `group_by` of the application.

```
level 0       the topics of the token                  wanted: the token
level 1       repartition topics that they feed        wanted: their ends, once level 0 has reached what is wanted
level 2       repartition topics that these feed       wanted: their ends, once level 1 has
```

The offsets are those that the consumer group has committed, of all instances together. A commit means that the outputs of
a task are durable, so the end of a repartition topic that is read afterwards is above all of them. It is the high
watermark: the last stable offset may be below records that are committed, as long as another task's transaction is open.
A repartition topic that topics of several levels feed belongs to the level after the last of these.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from streamrt.errors import ArgumentTypeError, ArgumentValueError, StaleTokenError
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.kafka.cluster.topic_ids import confirmed_ids
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.topology import Topology
from streamrt.topology.graph import topic_of

__all__ = ["Completion", "KafkaOffsetView", "OffsetView", "TopicView", "checked_token", "levels_below"]

_STILL_S = 1.0
"""Seconds without a commit after which the rest of a partition is looked at: it may be nothing but transaction markers."""


class OffsetView(Protocol):
    """A view of the topics of an application and its consumer group. Implemented by `KafkaOffsetView`."""

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        """Return the partitions of the topics that exist."""

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Return the committed offsets, without waiting for pending transactions."""

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return the first offsets and the high watermarks."""

    def stable_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the last stable offsets."""

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        """Return whether a range below the last stable offset has committed records, and not only markers."""


class TopicView(Protocol):
    """A view of the topics that a token names. Implemented by `KafkaOffsetView`."""

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        """Return the partitions of the topics that exist."""

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return Kafka's ids of the topics that exist."""


class KafkaOffsetView:
    """The offsets of a consumer group and of topics in a cluster.

    Args:
        admin: client for topics and offsets.
        connection: the connection to Kafka.
        group: the consumer group.
        timeout: seconds to wait for each response of the cluster.
    """

    def __init__(self, admin: TopicAdmin, connection: ConnectionConfig, group: str, timeout: float) -> None:
        self._admin = admin
        self._connection = connection
        self._group = group
        self._timeout = timeout

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        """Return the partitions of the topics that exist."""
        found = self._admin.inspect_topics(topics, timeout=self._timeout)
        return [
            TopicPartition(topic, number)
            for topic, config in found.items()
            for number in range(0 if config is None else config.num_partitions or 0)
        ]

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Return the committed offsets, without waiting for pending transactions."""
        found = self._admin.committed_now(self._group, partitions, timeout=self._timeout)
        return {partition: entry.offset for partition, entry in found.items()}

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return the first offsets and the high watermarks."""
        return self._admin.offset_bounds(partitions, timeout=self._timeout)

    def stable_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the last stable offsets."""
        found = self._admin.offset_bounds(partitions, timeout=self._timeout, isolation_level="read_committed")
        return {partition: end for partition, (_, end) in found.items()}

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        """Return whether a range below the last stable offset has committed records, and not only markers."""
        with contextlib.closing(KafkaTaskClients(self._connection, self._group)) as clients:
            return clients.has_records(partition, start, end)

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return Kafka's ids of the topics that exist."""
        found = self._admin.topic_ids(topics, timeout=self._timeout)
        return {topic: known for topic, known in found.items() if known is not None}


class Completion:
    """Follows the records below a token through an application.

    Args:
        topology: the operators, resolved.
        token: the next offset of partitions that the application reads.
        offsets: what Kafka knows.
        clock: returns seconds.
        finish: called with the number of a level that is done, until it returns True; then the next level follows.
    """

    def __init__(
        self,
        topology: Topology,
        token: Mapping[TopicPartition, int],
        offsets: OffsetView,
        clock: Callable[[], float] = time.monotonic,
        finish: Callable[[int], bool] = lambda level: True,
    ) -> None:
        self._token = dict(token)
        self._offsets = offsets
        self._clock = clock
        self._finish = finish
        self._level = -1
        self._levels = levels_below(topology, {partition.topic for partition in token})
        self._internal = frozenset(topology.exchanges)
        self._wanted: dict[TopicPartition, int] = {}
        # By partition: its committed offset, and since when it is that.
        self._seen: dict[TopicPartition, tuple[int | None, float]] = {}
        self._looked_at: set[tuple[TopicPartition, int, int]] = set()

    @property
    def missing(self) -> dict[TopicPartition, tuple[int | None, int]]:
        """The committed and the wanted offset of the partitions of the current level that are not there yet."""
        return {partition: (self._committed_offset(partition), wanted) for partition, wanted in self._wanted.items()}

    def advance(self) -> bool:
        """Look at the committed offsets; return whether everything is done."""
        while True:
            if self._wanted:
                self._forget_completed()
            if self._wanted or (self._level >= 0 and not self._finish(self._level)):
                return False
            if not self._levels:
                return True
            self._set_wanted_of_level(self._levels.pop(0))
            self._level += 1

    def _forget_completed(self) -> None:
        """Forget the partitions that have reached what is wanted."""
        now = self._clock()
        found = self._offsets.committed(list(self._wanted))
        for partition, offset in found.items():
            if partition not in self._seen or self._seen[partition][0] != offset:
                self._seen[partition] = offset, now
        self._wanted = {each: wanted for each, wanted in self._wanted.items() if (found.get(each) or 0) < wanted}
        still = [each for each in self._wanted if now - self._seen[each][1] >= _STILL_S]
        self._pass_markers([each for each in still if self._committed_offset(each) is not None])

    def _pass_markers(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions whose rest has no records: an application commits markers late, and when it is paused never."""
        ranges = {each: (each, self._committed_offset(each) or 0, self._wanted[each]) for each in partitions}
        ranges = {each: rest for each, rest in ranges.items() if rest not in self._looked_at}
        if not ranges:
            return
        stable = self._offsets.stable_ends(list(ranges))
        for partition, rest in ranges.items():
            if stable[partition] >= rest[2]:
                # Below the last stable offset nothing changes any more, so one look is enough.
                self._looked_at.add(rest)
                # The first offset is asked for after the look: what retention has deleted may be at work in a task.
                if not self._offsets.has_records(*rest) and self._offsets.bounds([partition])[partition][0] <= rest[1]:
                    del self._wanted[partition]

    def _set_wanted_of_level(self, level: Collection[str]) -> None:
        """Set what is wanted of a level: the ends of its repartition topics, and what the token says."""
        internal = [topic for topic in level if topic in self._internal]
        ends = self._offsets.bounds(self._offsets.partitions(internal)) if internal else {}
        self._wanted = {partition: end for partition, (first, end) in ends.items() if end > first}
        for partition, offset in self._token.items():
            if partition.topic in level:
                self._wanted[partition] = max(offset, self._wanted.get(partition, 0))
        self._wanted = {partition: wanted for partition, wanted in self._wanted.items() if wanted > 0}

    def _committed_offset(self, partition: TopicPartition) -> int | None:
        return self._seen[partition][0] if partition in self._seen else None


def levels_below(topology: Topology, topics: Iterable[str]) -> list[list[str]]:
    """Return topics, and the repartition topics that they feed, by the number of `group_by`s before them.

    Args:
        topology: the operators, resolved.
        topics: names of topics that the application reads.
    """
    level = dict.fromkeys(topics, 0)
    # The longest way through the topology has as many steps as it has exchanges.
    for _ in topology.exchanges:
        for topic, exchange in topology.exchanges.items():
            above = [level[topic_of(root)] for root in topology.roots(exchange) if topic_of(root) in level]
            if above:
                level[topic] = 1 + max(above)
    return [sorted(name for name, at in level.items() if at == number) for number in sorted(set(level.values()))]


def checked_token(token: Offsets | str, topology: Topology, view: TopicView, what: str) -> Offsets:
    """Return a token whose offsets mean records that the application reads.

    Args:
        token: the token, or its text.
        topology: the operators, resolved.
        view: what Kafka knows.
        what: the method that got the token, for errors.

    Raises:
        ArgumentTypeError: if it is not a token.
        ArgumentValueError: if it is another text, or has a topic or partition that the application does not read.
        StaleTokenError: if a topic was deleted, or created again.
        TokenVersionError: if a newer version of StreamRT made it.
    """
    if not isinstance(token, Offsets | str):
        raise ArgumentTypeError(f"{what}() needs Offsets or their text, got {type(token).__name__}")
    offsets = Offsets.parse(token) if isinstance(token, str) else token
    unknown = [topic for topic in offsets.topics if topic not in topology.sources]
    if unknown:
        raise ArgumentValueError(
            f"{what}() got offsets of {', '.join(unknown)}, which the application does not read; it reads "
            f"{', '.join(topology.sources)}"
        )
    ids = confirmed_ids(view.topic_ids, {topic: offsets.ids.get(topic) for topic in offsets.topics})
    for topic in offsets.topics:
        now = ids[topic]
        if now is None or offsets.ids.get(topic, now) != now:
            fate = "created again" if now is not None else "not created again"
            raise StaleTokenError(
                f"topic {topic!r} was deleted and {fate} since the token was made, so its offsets mean no records that "
                "exist: drop the token"
            )
    existing = set(view.partitions(offsets.topics))
    missing = [partition for partition in offsets if partition not in existing]
    if missing:
        raise ArgumentValueError(f"{what}() got an offset of {missing[0]}, and the topic does not have this partition")
    return offsets
