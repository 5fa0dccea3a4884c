"""The home of one table in another process: what lookups need of a catalogue, without the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from streamrt.errors import ConfigurationError, InvalidOperationError
from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.tables.access.links import TableLinks
from streamrt.tables.access.shared_resources import SharedResources
from streamrt.tables.access.task_links import TaskLinks
from streamrt.tables.descriptions.home import TableHome
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.descriptions.permissions import TablePermissions

if TYPE_CHECKING:
    from streamrt.serializers.registry import SchemaRegistryClientConfig

__all__ = ["TaskHome"]


class TaskHome:
    """Knows one table on Kafka. It can be pickled: the connection is a secret, which is sent apart.

    Args:
        info: the table.
        home: its catalogue.
    """

    schema_registry: SchemaRegistryClientConfig | None = None

    def __init__(self, info: TableInfo, home: TableHome) -> None:
        links = home.links
        reached = TaskLinks(links.connection, home.timeout) if isinstance(links, KafkaLinks) else None
        self._begin(info, reached, home.timeout, home.row_format(info), home.key_format(info))

    def _begin(
        self, info: TableInfo, reached: TaskLinks | None, timeout: float, rows: RowFormat, keys: KeyFormat | None
    ) -> None:
        self._given = (info, reached, timeout, rows, keys)
        self.info = info
        self.timeout = timeout
        self.resources = SharedResources()
        self.permissions = TablePermissions()
        self._rows = rows
        self._keys = keys
        self._reached = reached

    @property
    def links(self) -> TableLinks:
        """How the topic is reached.

        Raises:
            ConfigurationError: if it is not on Kafka.
        """
        if self._reached is None:
            raise ConfigurationError(
                f"table {self.info.name!r} is in the memory of the process that defined the application, and not in that of "
                "its tasks: use a catalogue on Kafka, or the test driver"
            )
        return self._reached.links

    def load(self, name: str) -> TableInfo:
        """Return what was known of the table when the application was defined."""
        return self.info

    def row_format(self, info: TableInfo) -> RowFormat:
        """Return the format of its rows."""
        return self._rows

    def key_format(self, info: TableInfo) -> KeyFormat | None:
        """Return the format of its keys."""
        return self._keys

    def connection(self, name: str) -> NoReturn:
        """Refuse: a table on Kafka needs no other connection."""
        raise InvalidOperationError(f"table {self.info.name!r} has no connection {name!r} here")

    def close(self) -> None:
        """Close the connections."""
        self.resources.close()
        if self._reached is not None:
            self._reached.close()

    def __getstate__(self) -> Any:
        return self._given

    def __setstate__(self, state: Any) -> None:
        self._begin(*state)
