"""The part of a catalogue that has connections to other systems."""

from streamrt.errors import ArgumentTypeError, CatalogError, ConfigurationError
from streamrt.kafka import ConnectionConfig
from streamrt.tables.catalog_base import CatalogBase
from streamrt.tables.connections import Connection
from streamrt.tables.naming import IF_EXISTS, check_choice, check_name
from streamrt.tables.objects import IfExists

__all__ = ["CatalogConnections"]


class CatalogConnections(CatalogBase):
    """Connections, which tables name."""

    def add_connection(self, name: str, connection: Connection, *, if_exists: IfExists = "error") -> None:
        """Add a connection, which tables name.

        Args:
            name: its name.
            connection: the connection, with references to secrets.
            if_exists: what happens if there is one: "error", "ignore" or "replace".

        Raises:
            CatalogError: if there is one of this name.
            ConfigurationError: if it has a secret, or is one to Kafka.
        """
        check_name("connection", name)
        check_choice("if_exists", if_exists, IF_EXISTS)
        if isinstance(connection, ConnectionConfig):
            raise ConfigurationError(
                f"add_connection({name!r}) has a connection to Kafka, which is not there yet: topics of tables are in the "
                "catalogue's own cluster; give tables of another cluster a Catalog of theirs"
            )
        if not isinstance(connection, Connection):
            raise ArgumentTypeError(
                f"add_connection({name!r}) must have a connection such as AWSConnection(), got {type(connection).__name__}"
            )
        self._require_open()

        def add(found: Connection | None) -> Connection:
            if found is None or if_exists == "replace":
                return connection
            if if_exists == "ignore":
                return found
            raise CatalogError(f"connection {name!r} exists already: choose another name, or pass if_exists='replace'")

        self._objects.change(self._objects.connections, name, add, keep_unknown=if_exists == "ignore")

    def connection(self, name: str) -> Connection:
        """Return a connection.

        Raises:
            ConfigurationError: if there is none.
        """
        self._require_open()
        found = self._objects.find(self._objects.connections, check_name("connection", name))
        if found is None:
            raise ConfigurationError(f"the catalogue has no connection {name!r}: add it by add_connection()")
        return found.value

    def connections(self) -> list[str]:
        """Return the names of the connections, sorted."""
        self._require_open()
        return self._objects.names(self._objects.connections)

    def drop_connection(self, name: str) -> None:
        """Remove a connection that no table names.

        Raises:
            ConfigurationError: if there is none.
            CatalogError: if a table names it.
        """
        self.connection(name)
        users = [info.name for info in self.infos() if info.connection == name]
        if users:
            raise CatalogError(f"connection {name!r} is in use by table {users[0]!r}: drop or alter the table first")
        self._objects.change(self._objects.connections, name, lambda _: None)
