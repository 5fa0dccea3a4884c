"""A catalogue for tests that only hands out tables."""

import datetime
from collections.abc import Mapping
from typing import Any

from streamrt.errors import TableNotFoundError
from streamrt.schema import Schema
from streamrt.serializers.row_formats import KeyFormat, RowFormat, key_format, row_format
from streamrt.tables.access.links import TableLinks
from streamrt.tables.access.shared_resources import SharedResources
from streamrt.tables.descriptions.connections import Connection
from streamrt.tables.descriptions.connectors import Connector
from streamrt.tables.descriptions.info import TableInfo, TableKind
from streamrt.tables.descriptions.permissions import TablePermissions
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


class Tables:
    """Tables by name; a `TableHome`."""

    def __init__(self, connections: Mapping[str, Connection] | None = None, links: TableLinks | None = None) -> None:
        self.links = links or MemoryLinks(auto_create=True)
        self.resources = SharedResources()
        self.timeout = 10.0
        self.schema_registry = None
        self.permissions = TablePermissions(None)
        self.recorded: list[tuple[Any, ...]] = []
        self.refusal: Exception | None = None
        self._connections = dict(connections or {})
        self._infos: dict[str, TableInfo] = {}

    def add(self, name: str, columns: Any, connector: Connector | None = None, **fields: Any) -> Table:
        schema = None if columns is None else Schema(columns, time=fields.pop("time", None))
        kind: TableKind = (
            "external" if connector is not None else "primary-key" if schema and schema.primary_key else "log"
        )
        self._infos[name] = TableInfo(
            name,
            kind,
            f"id of {name}",
            "kafka" if connector is None else connector.word,
            fields.pop("topic", name) if connector is None else None,
            fields.pop("num_partitions", 1),
            "json",
            schema,
            NOW,
            NOW,
            options={} if connector is None else connector.options(),
            key=fields.pop("key", () if schema is None else schema.primary_key),
            **fields,
        )
        return self.table(name)

    def table(self, name: str) -> Table:
        return Table(self.load(name), self)

    def load(self, name: str) -> TableInfo:
        if name not in self._infos:
            raise TableNotFoundError(f"there is no table {name!r}")
        return self._infos[name]

    def row_format(self, info: TableInfo) -> RowFormat:
        assert info.schema is not None
        return row_format(info.format, info.schema, info.format_options)

    def key_format(self, info: TableInfo) -> KeyFormat | None:
        assert info.schema is not None
        return key_format(info.key_format, info.schema, info.key) if info.key else None

    def connection(self, name: str) -> Connection:
        return self._connections[name]

    def record_usage(
        self,
        application: str,
        *,
        reads: tuple[str, ...],
        writes: tuple[str, ...],
        maintains: tuple[str, ...] = (),
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.recorded.append((application, reads, writes))
