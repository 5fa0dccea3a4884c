"""The stores of one process."""

from pathlib import Path

from streamrt.runtime.placement import StateSettings
from streamrt.runtime.tasks.stores.locks import tried_once
from streamrt.runtime.tasks.stores.snapshots import Snapshots
from streamrt.state import MemoryStore, RocksDBStore, Store
from streamrt.state.spec import StoreSpec

__all__ = ["StoreCatalog"]


class StoreCatalog:
    """The `Store` objects of one process; memory stores keep their data in them.

    Args:
        settings: directories and changelogs of stores.

    Attributes:
        snapshots: takes and finds snapshots of stores; None if there are none.
    """

    def __init__(self, settings: StateSettings) -> None:
        self.settings = settings
        self.snapshots: Snapshots | None = None
        if settings.snapshots is not None and not settings.in_memory:
            self.snapshots = Snapshots(settings.snapshots, Path(settings.base_dir))
        self._stores: dict[tuple[str, str], Store] = {}

    def store(self, topic: str, spec: StoreSpec) -> Store:
        """Return the store of a source topic, or of merged topics."""
        store = self._stores.get((topic, spec.name))
        if store is None:
            kind = MemoryStore if self.settings.in_memory and spec.store_type is RocksDBStore else spec.store_type
            store = kind(spec.name, topic, Path(self.settings.base_dir), tried_once(self.settings.options))
            self._stores[topic, spec.name] = store
        return store
