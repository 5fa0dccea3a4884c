"""Tables without a catalogue, written and read by tests in memory or on a broker, and records as tests write them."""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple

from streamrt.errors import TableNotFoundError
from streamrt.kafka import TopicConfig
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.serializers.row_formats import KeyFormat, RowFormat, key_format, row_format
from streamrt.tables.access.links import RecordFeed, TableLinks
from streamrt.tables.access.shared_resources import SharedResources
from streamrt.tables.descriptions.connections import Connection
from streamrt.tables.descriptions.info import TableInfo, TableKind
from streamrt.tables.descriptions.permissions import TablePermissions
from streamrt.tables.reading.stream import TableStream
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic

EVENTS = Schema("id BIGINT NOT NULL, name STRING, score DOUBLE")
COLUMNS = "id BIGINT NOT NULL, customer STRING, amount DECIMAL(10, 2) DEFAULT 0, at TIMESTAMP"
"""Of a table of orders."""
NOW = datetime(2026, 11, 23, tzinfo=timezone.utc)


@dataclass
class Home:
    """Things that a table asks its catalogue for."""

    links: TableLinks = field(default_factory=MemoryLinks)
    timeout: float = 60.0
    schema_registry: None = None
    resources: SharedResources = field(default_factory=SharedResources)
    permissions: TablePermissions = field(default_factory=lambda: TablePermissions(None))

    def load(self, name: str) -> TableInfo:
        """There is no catalogue."""
        raise TableNotFoundError(name)

    def row_format(self, info: TableInfo) -> RowFormat:
        """Return the format of rows."""
        assert info.schema is not None
        return row_format(info.format, info.schema, info.format_options)

    def key_format(self, info: TableInfo) -> KeyFormat | None:
        """Return the format of keys; records of tables without a key column have any keys."""
        assert info.schema is not None
        return key_format(info.key_format, info.schema, info.key) if info.key else None

    def connection(self, name: str) -> Connection:
        """There is no catalogue."""
        raise KeyError(name)


class Stored(NamedTuple):
    """A row as readers of committed records see it."""

    row: dict[str, Any]
    key: bytes | None
    timestamp: int
    partition: int


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


def table_info(
    schema: Schema | str | None,
    name: str = "shop.orders",
    *,
    topic: str | None = None,
    partitions: int = 1,
    key: Sequence[str] = (),
    kind: TableKind = "log",
) -> TableInfo:
    """Return what a catalogue knows of a table that is written."""
    return info_of(
        None if kind == "external" else topic or name,
        Schema(schema) if isinstance(schema, str) else schema,
        name=name,
        kind=kind,
        connector="sqs" if kind == "external" else "kafka",
        num_partitions=partitions,
        key=tuple(key),
    )


def create(links: TableLinks, info: TableInfo) -> Table:
    """Create the topic of a table, and return the table."""
    assert info.topic is not None
    links.admin().create_topics([Topic(info.topic, config=TopicConfig(info.num_partitions, 1))])
    return Table(info, Home(links))


def committed(links: TableLinks, table: Table) -> list[Stored]:
    """Return the committed rows of a table, by partition."""
    rows_as = Home(links).row_format(table.info)
    return [
        Stored(rows_as.decode(value or b"", str(table.info.topic)), key, timestamp, partition)
        for partition, key, value, timestamp in committed_records(links, table)
    ]


def committed_records(links: TableLinks, table: Table) -> list[tuple[int, bytes | None, bytes | None, int]]:
    """Return partition, key, value and timestamp of the committed records of a table, by partition."""
    info = table.info
    assert info.topic is not None
    assert info.num_partitions is not None
    found: list[tuple[int, bytes | None, bytes | None, int]] = []
    partitions = [TopicPartition(info.topic, number) for number in range(info.num_partitions)]
    bounds = links.admin().offset_bounds(partitions, isolation_level="read_committed")
    for partition, (start, end) in bounds.items():
        with contextlib.closing(links.feed()) as feed:
            feed.add({partition: start})
            feed.resume([partition])
            deadline = time.monotonic() + 60
            while start < end and feed.ends().get(partition, -1) < end and time.monotonic() < deadline:
                for _, batch in feed.poll(0.2, 10_000):
                    for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
                        found.append((partition.partition, key, value, timestamp))
    return found


def rows_in(links: TableLinks, table: Table) -> list[dict[str, Any]]:
    """Return the committed rows of a table, without what else is known of them."""
    return [stored.row for stored in committed(links, table)]


def created_again(links: TableLinks, table: Table) -> Table:
    """Delete the topic of a table, and create it again. Other threads never see it missing."""
    assert isinstance(links, MemoryLinks)
    with links._changed:
        links.admin().delete_topics([str(table.info.topic)])
        return create(links, table.info)


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


def known_ids(records: Any) -> list[int]:
    """Return the ids of records."""
    return [record.row["id"] for record in records]


def poll_ids(stream: TableStream, enough: Callable[[list[int]], bool]) -> list[int]:
    """Return the ids of the rows that come, until they are enough; each poll must return some."""
    found: list[int] = []
    while not enough(found):
        came = known_ids(stream.poll(60))
        assert came, f"no row has come within 60 s, after {found}"
        found += came
    return found


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
