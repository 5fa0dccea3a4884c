"""Tables of the test driver: topics in memory, which the application under test reads and writes."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from streamrt.kafka.cluster.topic_config import TopicConfig
from streamrt.kafka.writing.portion import Portion, produce_each
from streamrt.kafka.writing.sender import Delivered
from streamrt.records import Headers, TopicPartition
from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.access.links import RecordFeed, RecordSender, TableAdmin, TableLinks
from streamrt.tables.access.shared_resources import SharedResources
from streamrt.tables.descriptions.connections import Connection
from streamrt.tables.descriptions.home import TableHome
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.descriptions.permissions import TablePermissions
from streamrt.tables.descriptions.topics import endpoint_topic_name
from streamrt.tables.table import Table
from streamrt.testing.memory import WrittenRecord
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic

__all__ = ["DriverTables"]

_GROUP = "the application under test"
Arrived = tuple[TopicPartition, int, WrittenRecord]
"""A record for the application, with its offset."""


class DriverTables:
    """The tables of a test driver; a `TableHome`, whose tables are in memory, and otherwise are those of a catalogue.

    Rows that are appended through it are processed as soon as their writer is flushed, or commits.

    Args:
        catalog: returns the catalogue of the application.
        counts: number of partitions by topic, of the topics that the application reads.
        written: returns what the application has written to a topic.
        process: processes records of topics that the application reads.
        now: returns the driver's wall clock in milliseconds since the Unix epoch.
    """

    def __init__(
        self,
        catalog: Callable[[], TableHome],
        counts: Mapping[str, int],
        written: Callable[[str], list[WrittenRecord]],
        process: Callable[[list[Arrived]], None],
        now: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self._counts = counts
        self._written = written
        self._process = process
        self._now = now
        self._memory: MemoryLinks | None = None
        # How many partitions topics have here, and how many written records were copied.
        self._kept: dict[str, int] = {}
        self._copied: dict[str, int] = {}
        self._lock = threading.RLock()
        self.resources = SharedResources()

    def follow(self, topics: Iterable[Topic]) -> None:
        """Keep the records of topics from now on: those of tables.

        Args:
            topics: the topics.
        """
        for topic in topics:
            self._add_topic(topic.name, None if topic.config is None else topic.config.num_partitions)

    def table(self, name: str) -> Table:
        """Return a table by its name. Rows of an external table are those that its source brings.

        Raises:
            TableNotFoundError: if the catalogue has none of this name.
        """
        return self._in_memory(self.load(name))

    def of(self, table: Table | str) -> Table:
        """Return a table in memory, by its name or by its handle in the catalogue."""
        return self.table(table) if isinstance(table, str) else self._in_memory(table.info)

    def end_of(self, partition: TopicPartition, least: int) -> int:
        """Return the offset of the next record of a partition."""
        if not self._keeps_partition(partition):
            return least
        (_, end) = self._links.admin().offset_bounds([partition])[partition]
        return max(end, least)

    def arrived(self, partition: TopicPartition, records: Iterable[WrittenRecord]) -> None:
        """Keep records that the application has processed, and that were not appended through a table."""
        if self._keeps_partition(partition):
            sender = self._links.sender()
            for each in records:
                sender.produce(partition.topic, each.value, each.key, each.timestamp, each.headers, partition.partition)

    def publish(self) -> None:
        """Keep what the application has written since the last call."""
        if not self._copied:
            return
        with self._lock:
            sender = self._links.sender()
            for name, copied in self._copied.items():
                fresh = self._written(name)[copied:]
                self._copied[name] += len(fresh)
                for each in fresh:
                    chosen = each.partition if each.partition >= 0 else None
                    sender.produce(name, each.value, each.key, each.timestamp, each.headers, partition=chosen)

    # -- TableHome -------------------------------------------------------------------------------------------------

    @property
    def links(self) -> TableLinks:
        """Topics in memory."""
        return _DriverLinks(self._links, self._counts, self._process_written, self._now)

    @property
    def timeout(self) -> float:
        """Seconds to wait for answers."""
        return self._catalog().timeout

    @property
    def schema_registry(self) -> None:
        """None: records of tests are looked at without a registry."""

    @property
    def permissions(self) -> TablePermissions:
        """The parts of this process that tables may use: everything."""
        return TablePermissions(None)

    def load(self, name: str) -> TableInfo:
        """Return what the catalogue knows of a table; the application under test maintains those that it can."""
        info = self._catalog().load(name)
        return replace(info, maintained_by=_GROUP) if info.requests_topic in self._counts else info

    def row_format(self, info: TableInfo) -> RowFormat:
        """Return the format of rows."""
        return self._catalog().row_format(info)

    def key_format(self, info: TableInfo) -> KeyFormat | None:
        """Return the format of keys."""
        return self._catalog().key_format(info)

    def connection(self, name: str) -> Connection:
        """Return a connection of the catalogue."""
        return self._catalog().connection(name)

    def _process_written(self, arrived: list[Arrived]) -> None:
        self._process(arrived)
        ends: dict[TopicPartition, int] = {}
        for partition, offset, _ in arrived:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        self._links.set_committed(_GROUP, ends)

    @property
    def _links(self) -> MemoryLinks:
        with self._lock:
            if self._memory is None:
                self._memory = MemoryLinks()
            return self._memory

    def _in_memory(self, info: TableInfo) -> Table:
        if info.topic is None:
            # What its source brings there can be appended in a test.
            info = replace(info, kind="log", topic=endpoint_topic_name(info.name), num_partitions=1)
        requests = info.requests_topic
        count = info.num_partitions if requests is None else self._counts.get(requests) or info.num_partitions
        self._add_topic(info.topic or info.name, count)
        if requests is not None:
            # Those that the application writes are in no table: it processes them.
            self._add_topic(requests, self._kept[info.topic or info.name], is_copied=False)
        self.publish()
        return Table(info, self)

    def _add_topic(self, name: str, count: int | None, *, is_copied: bool = True) -> None:
        with self._lock:
            if name not in self._kept:
                self._kept[name] = self._counts.get(name) or count or 1
                self._links.admin().create_topics([Topic(name, TopicConfig(self._kept[name], 1))])
                if is_copied:
                    self._copied[name] = 0

    def _keeps_partition(self, partition: TopicPartition) -> bool:
        # Tests need not declare the partitions that they pipe to.
        return partition.partition < self._kept.get(partition.topic, 0)


class _DriverLinks:
    """Topics in memory, where the records of topics that the application reads are processed at once."""

    def __init__(
        self,
        memory: MemoryLinks,
        counts: Mapping[str, int],
        process: Callable[[list[Arrived]], None],
        now: Callable[[], int],
    ) -> None:
        self._memory = memory
        self._counts = counts
        self._process = process
        self._now = now

    def admin(self) -> TableAdmin:
        return self._memory.admin()

    def feed(self, options: Mapping[str, Any] | None = None) -> RecordFeed:
        return self._memory.feed(options)

    def sender(self, options: Mapping[str, Any] | None = None, transactional_id: str | None = None) -> RecordSender:
        sender = self._memory.sender(options, transactional_id)
        return _DriverSender(sender, transactional_id is not None, self._counts, self._process, self._now)


class _DriverSender:
    """A sender whose delivered, committed records are processed."""

    def __init__(
        self,
        sender: RecordSender,
        transactional: bool,
        counts: Mapping[str, int],
        process: Callable[[list[Arrived]], None],
        now: Callable[[], int],
    ) -> None:
        self._sender = sender
        self._transactional = transactional
        self._counts = counts
        self._process = process
        self._now = now
        self._arrived: list[Arrived] = []

    @property
    def usable(self) -> bool:
        return self._sender.usable

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        on_delivery: Delivered | None = None,
    ) -> None:
        def delivered(error: Exception | None, number: int, offset: int, sent_at: int) -> None:
            if error is None and topic in self._counts:
                record = WrittenRecord(value, key, sent_at, headers, number)
                self._arrived.append((TopicPartition(topic, number), offset, record))
            if on_delivery is not None:
                on_delivery(error, number, offset, sent_at)

        sent_at = self._now() if timestamp is None else timestamp
        self._sender.produce(topic, value, key, sent_at, headers, partition, delivered)

    def produce_all(self, topic: str, portion: Portion) -> None:
        produce_each(self.produce, topic, portion)

    def partitions(self, topic: str, timeout: float) -> int | None:
        return self._sender.partitions(topic, timeout)

    def poll(self, timeout: float = 0.0) -> None:
        self._sender.poll(timeout)
        self._hand_over(not self._transactional)

    def flush(self, timeout: float) -> int:
        left = self._sender.flush(timeout)
        self._hand_over(not self._transactional)
        return left

    def commit(self) -> None:
        self._sender.commit()
        self._hand_over(True)

    def abort(self) -> None:
        self._arrived.clear()
        self._sender.abort()

    def close(self) -> None:
        self._arrived.clear()
        self._sender.close()

    def _hand_over(self, committed: bool) -> None:
        if committed and self._arrived:
            arrived, self._arrived = self._arrived, []
            self._process(arrived)
