"""The home of one table in another process: what lookups need of a catalogue, without the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from streamrt.errors import ConfigurationError, InvalidOperationError
from streamrt.kafka import ConnectionConfig
from streamrt.secret import Secret
from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.tables.access.links import TableLinks
from streamrt.tables.access.shared_resources import SharedResources
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
        connection = Secret(links.connection.to_secret_json()) if isinstance(links, KafkaLinks) else None
        self._begin(info, connection, home.timeout, home.row_format(info), home.key_format(info))

    def _begin(
        self, info: TableInfo, connection: Secret | None, timeout: float, rows: RowFormat, keys: KeyFormat | None
    ) -> None:
        self._given = (info, connection, timeout, rows, keys)
        self.info = info
        self.timeout = timeout
        self.resources = SharedResources()
        self.permissions = TablePermissions()
        self._rows = rows
        self._keys = keys
        self._links: KafkaLinks | None = None

    @property
    def links(self) -> TableLinks:
        """How the topic is reached.

        Raises:
            ConfigurationError: if it is not on Kafka.
        """
        if self._links is None:
            connection = self._given[1]
            if connection is None:
                raise ConfigurationError(
                    f"table {self.info.name!r} is in the memory of the process that defined the application, and not in that "
                    "of its tasks: use a catalogue on Kafka, or the test driver"
                )
            self._links = KafkaLinks(ConnectionConfig.from_secret_json(connection.reveal()), self.timeout)
        return self._links

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
        if self._links is not None:
            self._links.close()
            self._links = None

    def __getstate__(self) -> Any:
        return self._given

    def __setstate__(self, state: Any) -> None:
        self._begin(*state)
