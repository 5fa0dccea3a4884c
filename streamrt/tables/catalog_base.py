"""What all parts of a catalogue share: its store, its links, and their life."""

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from typing_extensions import Self

from streamrt.errors import ConfigurationError, DatabaseNotFoundError, InvalidOperationError, TableNotFoundError
from streamrt.kafka import ConnectionConfig
from streamrt.kafka.topic_config import Broker
from streamrt.tables.catalog_store import CatalogStore
from streamrt.tables.info import TableInfo
from streamrt.tables.kafka_catalog import KafkaCatalog
from streamrt.tables.kafka_links import KafkaLinks
from streamrt.tables.links import TableLinks
from streamrt.tables.naming import check_name, full_name
from streamrt.tables.objects import CatalogObjects, IfMissing

if TYPE_CHECKING:
    from streamrt.serializers.registry import SchemaRegistryClientConfig

__all__ = ["DEFAULT_DATABASE", "CatalogBase", "ClusterAdmin"]

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


class CatalogBase(ABC):
    """A catalogue without its contents; `Catalog` describes the parameters."""

    def __init__(
        self,
        broker_address: str | ConnectionConfig | None = None,
        *,
        store: CatalogStore | None = None,
        database: str = DEFAULT_DATABASE,
        timeout: float = 30.0,
        connect: bool = False,
        schema_registry: "SchemaRegistryClientConfig | None" = None,
        links: TableLinks | None = None,
    ) -> None:
        if broker_address is not None and links is not None:
            raise ConfigurationError("Catalog() has an address of a broker and links: give one of them")
        if broker_address is None and links is None and store is None:
            raise ConfigurationError(
                "Catalog() needs the address of a broker, or store=FileCatalog(directory) for a catalogue without topics"
            )
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < float("inf"):
            raise ConfigurationError(f"Catalog(timeout=...) must be a number of seconds above 0, got {timeout!r}")
        self._database = check_name("database", database)
        self._timeout = float(timeout)
        self._registry = schema_registry
        self._owns_links = links is None
        self._links = KafkaLinks(broker_address, self._timeout) if broker_address is not None else links
        self._objects = CatalogObjects(KafkaCatalog() if store is None else store)
        self._objects.store.connect(self._links, self._timeout)
        self._lock = threading.Lock()
        self._closed = False
        if connect:
            self._check_connection()

    @property
    def links(self) -> TableLinks:
        """How topics are reached.

        Raises:
            InvalidOperationError: if the catalogue is closed, or has no broker.
        """
        self._require_open()
        if self._links is None:
            raise InvalidOperationError("this catalogue has no broker: create it as Catalog(broker_address, store=...)")
        return self._links

    @property
    def schema_registry(self) -> "SchemaRegistryClientConfig | None":
        """Connection to the schema registry of formats that use one, or None."""
        return self._registry

    @property
    def timeout(self) -> float:
        """Seconds to wait for answers."""
        return self._timeout

    def close(self) -> None:
        """Close the connections. Tables of a closed catalogue raise InvalidOperationError."""
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._objects.store.close()
            if self._owns_links and isinstance(self._links, KafkaLinks):
                self._links.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def brokers(self) -> list[Broker]:
        """Return the brokers of the cluster that answer.

        Raises:
            KafkaRequestError: if no broker answers in time.
            InvalidOperationError: if the catalogue has no broker.
        """
        self._require_open()
        cluster = self._cluster()
        if cluster is None:
            raise InvalidOperationError("the topics of this catalogue are in no cluster with brokers")
        return cluster.brokers(self._timeout)

    @abstractmethod
    def load(self, name: str) -> TableInfo:
        """Return what is known of a table."""

    @abstractmethod
    def tables(self, database: str | None = None) -> list[str]:
        """Return the names of tables."""

    @abstractmethod
    def databases(self) -> list[str]:
        """Return the names of databases."""

    @abstractmethod
    def infos(self, database: str | None = None) -> list[TableInfo]:
        """Return what is known of tables."""

    @abstractmethod
    def drop_table(
        self, name: str, *, delete_data: bool = False, missing: IfMissing = "error", force: bool = False
    ) -> None:
        """Drop a table."""

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidOperationError("the catalogue is closed: create another one")

    def _check_connection(self) -> None:
        cluster = self._cluster()
        if cluster is not None:
            cluster.wait_for_broker(self._timeout)

    def _cluster(self) -> ClusterAdmin | None:
        """Return the administration of the cluster, or None if topics are in none."""
        admin: object = None if self._links is None else self._links.admin()
        return admin if isinstance(admin, ClusterAdmin) else None

    def _full(self, name: object) -> str:
        self._require_open()
        return full_name(name, self._database)

    def _no_table(self, name: str) -> TableNotFoundError:
        return TableNotFoundError(
            f"there is no table {name!r} in the catalogue{self._note()}: see tables(), or create it"
        )

    def _no_database(self, name: str) -> DatabaseNotFoundError:
        return DatabaseNotFoundError(
            f"there is no database {name!r} in the catalogue{self._note()}: create it by create_database()"
        )

    def _note(self) -> str:
        note = self._objects.store.note
        return "" if note is None else f" ({note})"
