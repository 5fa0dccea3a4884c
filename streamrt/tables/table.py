"""`Table`: the handle of a named stream."""

from typing import Protocol

from streamrt.errors import SchemaError
from streamrt.schema import Schema
from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.connections import Connection
from streamrt.tables.info import TableInfo, TableKind
from streamrt.tables.links import TableLinks

__all__ = ["Table", "TableHome"]


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

    def __repr__(self) -> str:
        return f"<Table {self.name!r} {self.kind}>"
