"""The protocol through which a table reaches its catalogue."""

from typing import TYPE_CHECKING, Protocol

from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.access.links import TableLinks
from streamrt.tables.access.shared_resources import SharedResources
from streamrt.tables.descriptions.connections import Connection
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.descriptions.permissions import TablePermissions

if TYPE_CHECKING:
    from streamrt.serializers.registry import SchemaRegistryClientConfig

__all__ = ["TableHome"]


class TableHome(Protocol):
    """The home of a table, by which it knows the rest of the world; a `Catalog` is one."""

    @property
    def links(self) -> TableLinks:
        """How topics are reached."""

    @property
    def resources(self) -> SharedResources:
        """What tables share, and what ends with the catalogue."""

    @property
    def timeout(self) -> float:
        """Seconds to wait for answers."""

    @property
    def schema_registry(self) -> "SchemaRegistryClientConfig | None":
        """Connection to the schema registry, or None."""

    @property
    def permissions(self) -> TablePermissions:
        """The parts of this process that tables may use."""

    def load(self, name: str) -> TableInfo:
        """Return what is known of a table now; raises TableNotFoundError."""

    def row_format(self, info: TableInfo) -> RowFormat:
        """Return the format of the rows of a table that has a schema."""

    def key_format(self, info: TableInfo) -> KeyFormat | None:
        """Return the format of the keys, or None if records have none."""

    def connection(self, name: str) -> Connection:
        """Return a connection of the catalogue; raises ConfigurationError if there is none of this name."""
