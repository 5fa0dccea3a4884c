"""System tables: what a catalogue knows of tables and applications, as rows."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa

from streamrt.records import TopicPartition
from streamrt.sql.queries.query_sources import SystemTable
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.descriptions.usages import ApplicationInfo

__all__ = ["GroupOffsets", "make_group_tables", "make_system_tables"]

_TIME = pa.timestamp("us", "UTC")
_TEXTS = pa.list_(pa.string())
_TABLES = pa.schema(
    [
        *(("name", pa.string()), ("kind", pa.string()), ("topic", pa.string()), ("partitions", pa.int32())),
        *(("format", pa.string()), ("schema", pa.string()), ("primary_key", _TEXTS), ("maintained_by", pa.string())),
        *(("comment", pa.string()), ("version", pa.int64()), ("created_at", _TIME), ("modified_at", _TIME)),
    ]
)
_APPLICATIONS = pa.schema(
    [("name", pa.string()), ("reads", _TEXTS), ("writes", _TEXTS), ("maintains", _TEXTS), ("started_at", _TIME)]
)
_USAGES = pa.schema([("table", pa.string()), ("kind", pa.string()), ("application", pa.string()), ("since", _TIME)])
_TOPICS = pa.schema(
    [
        *(("topic", pa.string()), ("table", pa.string()), ("partition", pa.int32())),
        *(("first_offset", pa.int64()), ("end_offset", pa.int64())),
    ]
)
_OFFSETS = pa.schema(
    [
        *(("application", pa.string()), ("topic", pa.string()), ("partition", pa.int32())),
        ("committed", pa.int64()),
    ]
)
_LAG = pa.schema([*_OFFSETS, ("end_offset", pa.int64()), ("lag", pa.int64())])

GroupOffsets = Callable[[], Mapping[TopicPartition, tuple[int | None, int | None]]]
"""Returns committed offset and end offset by partition; None for those that are unknown."""


class CatalogListing(Protocol):
    """The part of a catalogue that system tables show."""

    def infos(self, database: str | None = None) -> list[TableInfo]:
        """Return what is known of tables."""

    def applications(self) -> list[ApplicationInfo]:
        """Return the applications that use tables."""


def make_system_tables(
    catalog: CatalogListing, bounds: Callable[[TableInfo], Mapping[int, tuple[int, int]]]
) -> dict[str, SystemTable]:
    """Return the system tables of a catalogue.

    Args:
        catalog: the catalogue.
        bounds: returns the first offset and the end offset of the partitions of a table's topic.
    """

    def list_topics() -> Iterator[Mapping[str, Any]]:
        for info in catalog.infos():
            if info.topic is None:
                continue
            for number, (low, high) in bounds(info).items():
                yield {
                    "topic": info.topic,
                    "table": info.name,
                    "partition": number,
                    "first_offset": low,
                    "end_offset": high,
                }

    def list_usages() -> Iterator[Mapping[str, Any]]:
        for each in catalog.applications():
            for usage in each.usages():
                yield {
                    "table": usage.table,
                    "kind": usage.kind,
                    "application": usage.application,
                    "since": usage.since,
                }

    return {
        "applications": SystemTable(_APPLICATIONS, lambda: map(_describe_application, catalog.applications())),
        "tables": SystemTable(_TABLES, lambda: map(_describe_table, catalog.infos())),
        "topics": SystemTable(_TOPICS, list_topics),
        "usages": SystemTable(_USAGES, list_usages),
    }


def make_group_tables(group: str, offsets: GroupOffsets) -> dict[str, SystemTable]:
    """Return the system tables of an application.

    Args:
        group: its consumer group.
        offsets: returns what the group has committed.
    """

    def place(partition: TopicPartition) -> dict[str, Any]:
        return {"application": group, "topic": partition.topic, "partition": partition.partition}

    def list_lag() -> Iterator[Mapping[str, Any]]:
        for partition, (committed, end) in sorted(offsets().items()):
            lag = None if committed is None or end is None else max(0, end - committed)
            yield {**place(partition), "committed": committed, "end_offset": end, "lag": lag}

    def list_offsets() -> Iterator[Mapping[str, Any]]:
        for partition, (committed, _) in sorted(offsets().items()):
            yield {**place(partition), "committed": committed}

    return {"offsets": SystemTable(_OFFSETS, list_offsets), "lag": SystemTable(_LAG, list_lag)}


def _describe_application(info: ApplicationInfo) -> Mapping[str, Any]:
    return {
        "name": info.name,
        "reads": list(info.reads),
        "writes": list(info.writes),
        "maintains": list(info.maintains),
        "started_at": info.started_at,
    }


def _describe_table(info: TableInfo) -> Mapping[str, Any]:
    schema = info.schema
    return {
        "name": info.name,
        "kind": info.kind,
        "topic": info.topic,
        "partitions": info.num_partitions,
        "format": info.format,
        "schema": None if schema is None else str(schema),
        "primary_key": [] if schema is None else list(schema.primary_key),
        "maintained_by": info.maintained_by,
        "comment": info.comment,
        "version": info.version,
        "created_at": info.created_at,
        "modified_at": info.modified_at,
    }
