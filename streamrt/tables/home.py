"""What a table knows the rest of the world by."""

from typing import Protocol, runtime_checkable

from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.connections import Connection
from streamrt.tables.info import TableInfo
from streamrt.tables.links import TableLinks

__all__ = ["ConnectedHome", "HasConnections", "TableHome"]


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


@runtime_checkable
class HasConnections(Protocol):
    """The part of a catalogue that knows connections of other systems."""

    # Without `links`: a check of the type would ask for them, and a catalogue may have none.
    def connection(self, name: str) -> Connection:
        """Return a connection of the catalogue; raises ConfigurationError if there is none of this name."""


class ConnectedHome(TableHome, HasConnections, Protocol):
    """A home that knows connections, too."""
