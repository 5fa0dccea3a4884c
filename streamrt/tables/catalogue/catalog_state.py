"""The state that all parts of a catalogue share: its objects, its links, and their life."""

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from streamrt.errors import (
    ConfigurationError,
    DatabaseNotFoundError,
    InvalidOperationError,
    TableNotFoundError,
    end_readably,
)
from streamrt.kafka import ConnectionConfig
from streamrt.kafka.cluster.topic_config import Broker
from streamrt.serializers.row_formats import KeyFormat, RowFormat, key_format, row_format
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.tables.access.links import TableLinks
from streamrt.tables.access.shared_resources import SharedResources
from streamrt.tables.catalogue.catalog_store import CatalogStore
from streamrt.tables.catalogue.kafka_catalog import KafkaCatalog
from streamrt.tables.catalogue.objects import CatalogObjects
from streamrt.tables.descriptions.info import TableInfo, required_schema
from streamrt.tables.descriptions.naming import check_name, full_name
from streamrt.tables.descriptions.permissions import TablePermissions

if TYPE_CHECKING:
    from streamrt.serializers.registry import SchemaRegistryClientConfig

__all__ = ["DEFAULT_DATABASE", "CatalogState", "ClusterAdmin"]

DEFAULT_DATABASE = "default"
"""The database that is there without being created."""


@runtime_checkable
class ClusterAdmin(Protocol):
    """An administration of a cluster with brokers and groups; `TopicAdmin` is one, and that of topics in memory is none."""

    def brokers(self, timeout: float = 30) -> list[Broker]:
        """Return the brokers."""

    def group_is_active(self, group: str, timeout: float = 30) -> bool:
        """Return whether a consumer group has members."""

    def wait_for_broker(self, timeout: float) -> None:
        """Wait until a broker answers."""


class CatalogState:
    """The store and the links of a catalogue, and how its parts name things; `Catalog` describes the parameters.

    Attributes:
        objects: what the catalogue has.
        registry: connection to the schema registry of formats that use one, or None.
        permissions: what tables may use of this process.
        resources: what tables share, and what ends with the catalogue.
        timeout: seconds to wait for answers.
    """

    def __init__(
        self,
        broker_address: str | ConnectionConfig | None = None,
        *,
        store: CatalogStore | None = None,
        database: str = DEFAULT_DATABASE,
        timeout: float = 30.0,
        schema_registry: "SchemaRegistryClientConfig | None" = None,
        links: TableLinks | None = None,
        allow: Iterable[str] | None = None,
    ) -> None:
        if broker_address is not None and links is not None:
            raise ConfigurationError("Catalog() has an address of a broker and links: give one of them")
        end_readably()
        if broker_address is None and links is None and store is None:
            raise ConfigurationError(
                "Catalog() needs the address of a broker, or store=FileCatalog(directory) for a catalogue without topics"
            )
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < float("inf"):
            raise ConfigurationError(f"Catalog(timeout=...) must be a number of seconds above 0, got {timeout!r}")
        self._database = check_name("database", database)
        self.timeout = float(timeout)
        self.registry = schema_registry
        self._owns_links = links is None
        self._links = KafkaLinks(broker_address, self.timeout) if broker_address is not None else links
        self.objects = CatalogObjects(KafkaCatalog() if store is None else store)
        self.objects.store.connect(self._links, self.timeout)
        if allow is not None:
            self.permissions = TablePermissions(allow)
        elif self.objects.store.is_own:
            self.permissions = TablePermissions(None)
        else:
            self.permissions = TablePermissions.of_environment()
        self.resources = SharedResources()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def links(self) -> TableLinks:
        """How topics are reached.

        Raises:
            InvalidOperationError: if the catalogue is closed, or has no broker.
        """
        self.require_open()
        if self._links is None:
            raise InvalidOperationError("this catalogue has no broker: create it as Catalog(broker_address, store=...)")
        return self._links

    @property
    def has_topics(self) -> bool:
        """Whether the catalogue has links."""
        return self._links is not None

    def close(self) -> None:
        """Close the connections. Tables of a closed catalogue raise InvalidOperationError."""
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self.resources.close()
            self.objects.store.close()
            if self._owns_links and isinstance(self._links, KafkaLinks):
                self._links.close()

    def brokers(self) -> list[Broker]:
        """Return the brokers of the cluster that answer.

        Raises:
            KafkaRequestError: if no broker answers in time.
            InvalidOperationError: if the catalogue has no broker.
        """
        self.require_open()
        cluster = self.cluster()
        if cluster is None:
            raise InvalidOperationError("the topics of this catalogue are in no cluster with brokers")
        return cluster.brokers(self.timeout)

    def require_topic(self, info: TableInfo) -> None:
        """Raise unless a table may use the variables in the name of its topic."""
        self.permissions.require_variables(f"the topic of table {info.name!r}", info.options.get("topic"))

    def row_format(self, info: TableInfo) -> RowFormat:
        """Return the format of the rows of a table that has a schema."""
        return row_format(info.format, required_schema(info), info.format_options, self.registry)

    def key_format(self, info: TableInfo) -> KeyFormat | None:
        """Return the format of the keys, or None if records have none."""
        if info.schema is None or not info.key:
            return None
        return key_format(info.key_format, info.schema, info.key)

    def require_open(self) -> None:
        """Raise InvalidOperationError if the catalogue is closed."""
        if self._closed:
            raise InvalidOperationError("the catalogue is closed: create another one")

    def check_connection(self) -> None:
        """Wait until a broker answers; a catalogue without a cluster has none to wait for.

        Raises:
            KafkaBrokerUnavailableError: if none does in time.
        """
        cluster = self.cluster()
        if cluster is not None:
            cluster.wait_for_broker(self.timeout)

    def cluster(self) -> ClusterAdmin | None:
        """Return the administration of the cluster, or None if topics are in none."""
        admin: object = None if self._links is None else self._links.admin()
        return admin if isinstance(admin, ClusterAdmin) else None

    def full_name(self, name: object) -> str:
        """Return a name with its database; raise InvalidOperationError if the catalogue is closed."""
        self.require_open()
        return full_name(name, self._database)

    def no_table(self, name: str) -> TableNotFoundError:
        """Return the error for a table that is not there."""
        return TableNotFoundError(
            f"there is no table {name!r} in the catalogue{self._creation_note()}: see tables(), or create it"
        )

    def no_database(self, name: str) -> DatabaseNotFoundError:
        """Return the error for a database that is not there."""
        return DatabaseNotFoundError(
            f"there is no database {name!r} in the catalogue{self._creation_note()}: create it by create_database()"
        )

    def _creation_note(self) -> str:
        note = self.objects.store.note
        return "" if note is None else f" ({note})"
