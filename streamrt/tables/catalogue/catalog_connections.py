"""The part of a catalogue that has connections to other systems."""

from streamrt.errors import ArgumentTypeError, CatalogError, ConfigurationError
from streamrt.kafka import ConnectionConfig
from streamrt.tables.catalogue.catalog_state import CatalogState
from streamrt.tables.catalogue.objects import IfExists
from streamrt.tables.descriptions.connections import Connection
from streamrt.tables.descriptions.naming import IF_EXISTS, check_choice, check_name

__all__ = ["CatalogConnections"]


class CatalogConnections:
    """The connections of a catalogue; `Catalog` says what each method does."""

    def __init__(self, state: CatalogState) -> None:
        self._state = state
        self._objects = state.objects

    def add(self, name: str, connection: Connection, if_exists: IfExists) -> None:
        """Add a connection, which tables name."""
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
        self._state.require_open()

        def add(found: Connection | None) -> Connection:
            if found is None or if_exists == "replace":
                return connection
            if if_exists == "ignore":
                return found
            raise CatalogError(f"connection {name!r} exists already: choose another name, or pass if_exists='replace'")

        self._objects.change(self._objects.connections, name, add, keep_unknown=if_exists == "ignore")

    def find(self, name: str) -> Connection:
        """Return a connection."""
        self._state.require_open()
        found = self._objects.find(self._objects.connections, check_name("connection", name))
        if found is None:
            raise ConfigurationError(f"the catalogue has no connection {name!r}: add it by add_connection()")
        return found.value

    def names(self) -> list[str]:
        """Return the names of the connections, sorted."""
        self._state.require_open()
        return self._objects.names(self._objects.connections)

    def drop(self, name: str) -> None:
        """Remove a connection that no table names."""
        self.find(name)
        users = [info.name for info in self._objects.all(self._objects.tables).values() if info.connection == name]
        if users:
            raise CatalogError(f"connection {name!r} is in use by table {users[0]!r}: drop or alter the table first")
        self._objects.change(self._objects.connections, name, lambda _: None)
