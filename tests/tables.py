"""Tables without a catalogue: what tests of writers share."""

import contextlib
import datetime
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from streamrt.kafka import TopicConfig
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.serializers.row_formats import KeyFormat, RowFormat, key_format, row_format
from streamrt.tables.info import TableInfo, TableKind
from streamrt.tables.links import TableLinks
from streamrt.tables.table import Table
from streamrt.topics import Topic

MOMENT = datetime.datetime(2026, 3, 29, tzinfo=datetime.timezone.utc)


class Home:
    """What tables know the world by.

    Args:
        links: how topics are reached.
    """

    def __init__(self, links: TableLinks) -> None:
        self.links = links
        self.timeout = 60.0

    def load(self, name: str) -> TableInfo:
        """Return nothing: handles are made with what they know."""
        raise KeyError(name)

    def row_format(self, info: TableInfo) -> RowFormat:
        """Return the format of rows."""
        assert info.schema is not None
        return row_format(info.format, info.schema, info.format_options)

    def key_format(self, info: TableInfo) -> KeyFormat | None:
        """Return the format of keys."""
        assert info.schema is not None
        return key_format(info.key_format, info.schema, info.key) if info.key else None


class Stored(NamedTuple):
    """A row as readers of committed records see it."""

    row: dict[str, Any]
    key: bytes | None
    timestamp: int
    partition: int


def info_of(
    schema: Schema | str | None,
    name: str = "shop.orders",
    *,
    topic: str | None = None,
    partitions: int = 1,
    key: Sequence[str] = (),
    kind: TableKind = "log",
) -> TableInfo:
    """Return what a catalogue would know of a table."""
    return TableInfo(
        name=name,
        kind=kind,
        id="1",
        connector="sqs" if kind == "external" else "kafka",
        topic=None if kind == "external" else topic or name,
        num_partitions=partitions,
        format="json",
        schema=Schema(schema) if isinstance(schema, str) else schema,
        created_at=MOMENT,
        modified_at=MOMENT,
        key=tuple(key),
    )


def create(links: TableLinks, info: TableInfo) -> Table:
    """Create the topic of a table, and return the table."""
    assert info.topic is not None
    links.admin().create_topics([Topic(info.topic, config=TopicConfig(info.num_partitions, 1))])
    return Table(info, Home(links))


def committed(links: TableLinks, table: Table) -> list[Stored]:
    """Return the committed rows of a table, by partition."""
    info = table.info
    assert info.topic is not None
    assert info.num_partitions is not None
    rows_as = Home(links).row_format(info)
    found: list[Stored] = []
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
                        row = rows_as.decode(value or b"", info.topic)
                        found.append(Stored(row, key, timestamp, partition.partition))
    return found
