"""A catalogue of one table, for tests of reading: topics in memory or of a broker, and records as a test writes them."""

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from streamrt.kafka import TopicConfig
from streamrt.kafka.inputs import InputBatch
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.serializers.row_formats import KeyFormat, RowFormat, row_format
from streamrt.tables.info import TableInfo
from streamrt.tables.links import RecordFeed, TableLinks
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic

EVENTS = Schema("id BIGINT NOT NULL, name STRING, score DOUBLE")
NOW = datetime(2026, 11, 23, tzinfo=timezone.utc)


@dataclass
class Home:
    """What a table asks its catalogue for."""

    links: TableLinks = field(default_factory=MemoryLinks)
    timeout: float = 60.0

    def load(self, name: str) -> TableInfo:
        """There is no catalogue."""
        raise KeyError(name)

    def row_format(self, info: TableInfo) -> RowFormat:
        """Return the format of rows."""
        assert info.schema is not None
        return row_format(info.format, info.schema, info.format_options)

    def key_format(self, info: TableInfo) -> KeyFormat | None:
        """Return None: records of these tests have any keys."""
        return None


def info_of(topic: str | None, schema: Schema | None = EVENTS, **changes: Any) -> TableInfo:
    """Return what a catalogue knows of a table."""
    known: dict[str, Any] = {
        "name": "demo.events",
        "kind": "log",
        "id": "1",
        "connector": "kafka",
        "topic": topic,
        "num_partitions": None,
        "format": "json",
        "schema": schema,
        "created_at": NOW,
        "modified_at": NOW,
    }
    return TableInfo(**{**known, **changes})


def table(
    partitions: int = 1,
    schema: Schema | None = EVENTS,
    home: Home | None = None,
    topic: str = "events",
    **changes: Any,
) -> Table:
    """Create a topic, and return a table of it."""
    home = home or Home()
    home.links.admin().create_topics([Topic(topic, config=TopicConfig(partitions, 1))])
    return Table(info_of(topic, schema, **changes), home)


def write(
    table: Table,
    rows: Iterable[Mapping[str, Any] | bytes | None],
    partition: int = 0,
    *,
    timestamps: Iterable[int] | None = None,
    abort: bool = False,
    transactional: bool = False,
) -> None:
    """Write records, as JSON or as they are."""
    links, topic = table._home.links, table.info.topic
    assert topic is not None
    transactional_id = "writer-of-tests" if transactional or abort else None
    with contextlib.closing(links.sender(transactional_id=transactional_id)) as sender:
        times = iter(timestamps) if timestamps is not None else iter(range(1_000, 10**9, 1_000))
        for row in rows:
            value = row if row is None or isinstance(row, bytes) else json.dumps(row).encode()
            sender.produce(topic, value, b"key", next(times), partition=partition)
        assert sender.flush(60) == 0
        if transactional_id is not None:
            (sender.abort if abort else sender.commit)()


def ids(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Return rows with consecutive ids."""
    return [{"id": number, "name": f"n{number}", "score": number / 2} for number in range(first, first + count)]


class CompactedLinks(MemoryLinks):
    """Topics in memory, of which records with some offsets were compacted.

    Args:
        gone: these offsets, of all partitions.
    """

    def __init__(self, gone: Iterable[int]) -> None:
        super().__init__()
        self.gone = frozenset(gone)

    def feed(self, options: Mapping[str, Any] | None = None) -> RecordFeed:
        """Return a reader."""
        return _CompactedFeed(super().feed(options), self.gone)


class _CompactedFeed:
    def __init__(self, feed: RecordFeed, gone: frozenset[int]) -> None:
        self._feed = feed
        self._gone = gone

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    def poll(self, timeout_s: float, records: int) -> list[tuple[TopicPartition, InputBatch]]:
        found = []
        for partition, batch in self._feed.poll(timeout_s, records):
            kept = [index for index, offset in enumerate(batch.offsets) if offset not in self._gone]
            if kept:
                columns = [None if each is None else [each[index] for index in kept] for each in batch]
                found.append((partition, InputBatch(*columns)))  # type: ignore[arg-type]
        return found
