"""Stores as topologies describe them."""

from dataclasses import dataclass

from streamrt.errors import ArgumentTypeError
from streamrt.state.base import Transaction
from streamrt.state.rocksdb import RocksDBStore
from streamrt.state.store import DEFAULT_STORE, Store, checked_name
from streamrt.state.transaction import StoreTransaction

__all__ = ["StoreSpec"]


@dataclass(frozen=True)
class StoreSpec:
    """A store as topologies describe it: it holds no data and can be pickled.

    Attributes:
        name: name of the store.
        kind: class of the store.
        transaction: class of its transactions, which decides what operators can do with it.

    Raises:
        ConfigurationError: if the name is not allowed, or one of the classes is none of stores or of transactions.

    Example:
        >>> from streamrt.state import MemoryStore
        >>> StoreSpec("totals", MemoryStore).kind.__name__
        'MemoryStore'
        >>> StoreSpec().name, StoreSpec().kind.__name__
        ('default', 'RocksDBStore')
    """

    name: str = DEFAULT_STORE
    kind: type[Store] = RocksDBStore
    transaction: type[Transaction] = StoreTransaction

    def __post_init__(self) -> None:
        checked_name(self.name)
        if not (isinstance(self.kind, type) and issubclass(self.kind, Store)):
            raise ArgumentTypeError(
                f"{self.kind!r} is no kind of store: give MemoryStore, RocksDBStore or a subclass of streamrt.state.Store"
            )
        if not (isinstance(self.transaction, type) and issubclass(self.transaction, Transaction)):
            raise ArgumentTypeError(
                f"{self.transaction!r} is no class of transactions: give StoreTransaction, TimedTransaction or another "
                "subclass of streamrt.state.Transaction"
            )
