"""Stores as topologies describe them."""

from dataclasses import dataclass

from streamrt.errors import ConfigurationError
from streamrt.state.rocksdb import RocksDBStore
from streamrt.state.store import DEFAULT_STORE, Store, checked_name

__all__ = ["StoreSpec"]


@dataclass(frozen=True)
class StoreSpec:
    """A store as topologies describe it: it holds no data and can be pickled.

    Attributes:
        name: name of the store.
        kind: class of the store.

    Raises:
        ConfigurationError: if the name is not allowed or the kind is no class of stores.

    Example:
        >>> from streamrt.state import MemoryStore
        >>> StoreSpec("totals", MemoryStore).kind.__name__
        'MemoryStore'
        >>> StoreSpec().name, StoreSpec().kind.__name__
        ('default', 'RocksDBStore')
    """

    name: str = DEFAULT_STORE
    kind: type[Store] = RocksDBStore

    def __post_init__(self) -> None:
        checked_name(self.name)
        if not (isinstance(self.kind, type) and issubclass(self.kind, Store)):
            raise ConfigurationError(
                f"{self.kind!r} is no kind of store: give MemoryStore, RocksDBStore or a subclass of streamrt.state.Store"
            )
