"""Tables with a primary key in memory, for tests: records as writers make them, compaction, and a model of the rows."""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from streamrt.kafka import TopicConfig
from streamrt.kafka.partitioner import partition_for
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.tables.access.links import RecordFeed
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic
from tests.table_home import Home, info_of

CUSTOMERS = Schema("name STRING, country STRING, score DOUBLE, id BIGINT, PRIMARY KEY (country, id)")
"""The key columns are neither first nor in the order of the columns."""


class CompactingLinks(MemoryLinks):
    """Topics in memory that may be compacted: superseded records, and old tombstones, are gone for readers."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: set[tuple[TopicPartition, int]] = set()
        self.feeds = 0

    def feed(self, options: Mapping[str, Any] | None = None) -> RecordFeed:
        """Return a reader."""
        self.feeds += 1
        return _CompactingFeed(super().feed(options), self.gone)

    def compact(self, topic: str, chosen: Iterable[int] | None = None, *, tombstones: bool = False) -> None:
        """Remove superseded records.

        Args:
            topic: name of the topic.
            chosen: numbers of those that are removed, modulo their count; None means all.
            tombstones: whether tombstones are also removed.
        """
        superseded = []
        for number, log in enumerate(self._topics[topic].partitions):
            last = {entry.key: at for at, entry in enumerate(log.entries) if log.is_visible(entry)}
            for at, entry in enumerate(log.entries):
                is_old = not entry.is_marker and (at != last.get(entry.key, at) or (tombstones and entry.value is None))
                if is_old and log.low + at < log.stable():
                    superseded.append((TopicPartition(topic, number), log.low + at))
        wanted = range(len(superseded)) if chosen is None else {each % max(1, len(superseded)) for each in chosen}
        self.gone.update(superseded[each] for each in wanted if superseded)


class _CompactingFeed:
    def __init__(self, feed: RecordFeed, gone: set[tuple[TopicPartition, int]]) -> None:
        self._feed = feed
        self._gone = gone

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    def poll(self, timeout_s: float, records: int) -> list[tuple[TopicPartition, InputBatch]]:
        found = []
        for partition, batch in self._feed.poll(timeout_s, records):
            kept = [index for index, offset in enumerate(batch.offsets) if (partition, offset) not in self._gone]
            if kept:
                columns = [None if each is None else [each[index] for index in kept] for each in batch]
                found.append((partition, InputBatch(*columns)))  # type: ignore[arg-type]
        return found


def keyed_table(
    partitions: int = 1, schema: Schema = CUSTOMERS, links: MemoryLinks | None = None, **changes: Any
) -> Table:
    """Create a compacted topic, and return a table of it."""
    home = Home(CompactingLinks() if links is None else links)
    settings = {"cleanup.policy": "compact"}
    home.links.admin().create_topics([Topic("customers", config=TopicConfig(partitions, 1, settings))])
    known = {"name": "shop.customers", "kind": "primary-key", "key": schema.primary_key, "num_partitions": partitions}
    return Table(info_of("customers", schema, **{**known, **changes}), home)


def customer(country: str, number: int, name: str | None = None, score: float | None = None) -> dict[str, Any]:
    """Return a row."""
    return {"name": name, "country": country, "score": score, "id": number}


def put(
    table: Table,
    *rows: Mapping[str, Any],
    deletes: bool = False,
    transactional: bool = False,
    abort: bool = False,
    partition: int | None = None,
    timestamp: int | None = None,
) -> None:
    """Write rows, or delete those with their keys, as foreign producers do."""
    home, info = table.home, table.info
    keys_as = home.key_format(info)
    assert keys_as is not None
    assert info.topic is not None
    transactional_id = "writer-of-tests" if transactional or abort else None
    with contextlib.closing(home.links.sender(transactional_id=transactional_id)) as sender:
        for row in rows:
            key = keys_as.encode(row)
            value = None if deletes else home.row_format(info).encode(row, info.topic)
            count = home.links.admin().partition_replicas(info.topic)
            chosen = partition_for(key, len(count)) if partition is None else partition
            sender.produce(info.topic, value, key, timestamp, partition=chosen)
        assert sender.flush(60) == 0
        if transactional_id is not None:
            (sender.abort if abort else sender.commit)()


def by_key(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] = ("country", "id")) -> dict[Any, dict[str, Any]]:
    """Return rows by their keys; no two have the same."""
    found: dict[Any, dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in columns)
        assert key not in found
        found[key] = dict(row)
    return found
