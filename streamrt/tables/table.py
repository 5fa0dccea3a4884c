"""`Table`: the handle of a named stream."""

from typing import Any, Protocol, runtime_checkable

from streamrt.errors import InvalidOperationError, SchemaError
from streamrt.kafka import Consumer, Producer
from streamrt.schema import Schema
from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.connections import Connection
from streamrt.tables.info import TableInfo, TableKind
from streamrt.tables.links import TableLinks
from streamrt.tables.topics import TableTopic, table_topic
from streamrt.tables.usages import Usage

__all__ = ["CatalogHome", "Table", "TableHome"]


class TableHome(Protocol):
    """What a table knows the rest of the world by; a `Catalog` is one."""

    @property
    def links(self) -> TableLinks:
        """How topics are reached."""

    @property
    def timeout(self) -> float:
        """Seconds to wait for answers."""

    def load(self, name: str) -> TableInfo:
        """Return what is known of a table now; raises TableNotFoundError."""

    def row_format(self, info: TableInfo) -> RowFormat:
        """Return the format of the rows of a table that has a schema."""

    def key_format(self, info: TableInfo) -> KeyFormat | None:
        """Return the format of the keys, or None if records have none."""

    def connection(self, name: str) -> Connection:
        """Return a connection of the catalogue; raises ConfigurationError if there is none of this name."""


@runtime_checkable
class CatalogHome(TableHome, Protocol):
    """A home in which tables are changed, too."""

    def usages(self, name: str) -> list[Usage]:
        """Return which applications use a table."""

    def set_schema(self, name: str, schema: Any, force: bool = False) -> TableInfo:
        """Give a table another schema."""


class Table:
    """A named, typed stream; `Catalog.table` returns it. It may be used in any thread."""

    def __init__(self, info: TableInfo, home: TableHome) -> None:
        self._info = info
        self._home = home

    @property
    def home(self) -> TableHome:
        """The catalogue of the table."""
        return self._home

    @property
    def name(self) -> str:
        """`<database>.<table>`."""
        return self._info.name

    @property
    def kind(self) -> TableKind:
        """Kind: "log", "primary-key" or "external"."""
        return self._info.kind

    @property
    def schema(self) -> Schema:
        """The columns.

        Raises:
            SchemaError: if the table has none.
        """
        if self._info.schema is None:
            raise SchemaError(f"table {self.name!r} has no schema: set one by set_schema(), or see detect_schema()")
        return self._info.schema

    @property
    def info(self) -> TableInfo:
        """What the catalogue knew of the table when this handle was made, or by its last change through it."""
        return self._info

    @property
    def topic(self) -> TableTopic:
        """The topic, with serializers for rows and keys: it stands wherever a topic does in an application.

        Raises:
            SchemaError: if the table has no schema.
            InvalidOperationError: if it is in another system.
        """
        if self._info.topic is None:
            raise InvalidOperationError(
                f"table {self.name!r} is in another system ({self._info.connector}), and has no topic of its own"
            )
        return table_topic(self._info, self._home)

    def refresh(self) -> TableInfo:
        """Return what the catalogue knows of the table now, which this handle knows from then on.

        Raises:
            TableNotFoundError: if it was dropped.
        """
        self._info = self._home.load(self.name)
        return self._info

    def usages(self) -> list[Usage]:
        """Return which applications read and write the table, as they said at their last starts."""
        return self._catalog.usages(self.name)

    def set_schema(self, schema: Any, *, force: bool = False) -> None:
        """Give the table another schema.

        Args:
            schema: a `Schema`, or what one is made of: a list of columns, `{"columns": [...]}`, a DDL text.
            force: whether rows that exist need not fit it: they cannot be read any more, then.

        Raises:
            SchemaEvolutionError: if rows that exist would not fit, with all reasons.
        """
        self._info = self._catalog.set_schema(self.name, schema, force)

    def consumer(self, group: str, **options: Any) -> Consumer:
        """Return a consumer that has subscribed to the topic of the table; it yields keys and values as bytes.

        Args:
            group: its consumer group.
            **options: more options of librdkafka, with `_` for `.`; without `auto_offset_reset`, it begins at "earliest".

        Raises:
            InvalidOperationError: if the table is in another system.
        """
        from streamrt.tables.native import consumer_of

        return consumer_of(self._info, self._home, group, options)

    def producer(self, **options: Any) -> Producer:
        """Return a producer for the cluster of the table; what it sends is not checked. See `writer` for rows.

        Args:
            **options: more options of librdkafka, with `_` for `.`.

        Raises:
            InvalidOperationError: if the table is in another system.
        """
        from streamrt.tables.native import producer_of

        return producer_of(self._info, self._home, options)

    def native(self) -> Any:
        """Return the client of another library for an external table.

        Returns:
            For HTTP streams, an `httpx_sse.EventSource`, whose `response` is to be closed; for SQS, a queue of boto3.

        Raises:
            InvalidOperationError: if the table is a topic of Kafka, or there is no such library.
            SourceError: if a server refuses.
        """
        from streamrt.tables.native import native_of

        return native_of(self._info, self._home)

    @property
    def _catalog(self) -> CatalogHome:
        if not isinstance(self._home, CatalogHome):
            raise InvalidOperationError(f"table {self.name!r} belongs to no catalogue that can be changed")
        return self._home

    def __repr__(self) -> str:
        return f"<Table {self.name!r} {self.kind}>"
