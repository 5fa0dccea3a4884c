"""Descriptions of stores in a topology."""

from dataclasses import dataclass

from streamrt.errors import ArgumentTypeError
from streamrt.state.base import Transaction
from streamrt.state.options import RocksDBOptions
from streamrt.state.rocksdb import RocksDBStore
from streamrt.state.store import DEFAULT_STORE, Store, StorePartition, checked_name
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.state.transactions.process_functions import ProcessTransaction

__all__ = ["ProcessStoreSpec", "StoreSpec"]


@dataclass(frozen=True)
class StoreSpec:
    """Describe a store in a topology; it holds no data and can be pickled.

    Attributes:
        name: name of the store.
        store_type: class of the store.
        transaction: class of its transactions; it determines the operations that operators can use.

    Raises:
        ConfigurationError: if the name is invalid, `store_type` is not a store class, or `transaction` is not a
            transaction class.

    Example:
        >>> from streamrt.state import MemoryStore
        >>> StoreSpec("totals", MemoryStore).store_type.__name__
        'MemoryStore'
        >>> StoreSpec().name, StoreSpec().store_type.__name__
        ('default', 'RocksDBStore')
    """

    name: str = DEFAULT_STORE
    store_type: type[Store] = RocksDBStore
    transaction: type[Transaction] = StoreTransaction

    def __post_init__(self) -> None:
        checked_name(self.name)
        if not (isinstance(self.store_type, type) and issubclass(self.store_type, Store)):
            raise ArgumentTypeError(
                f"{self.store_type!r} is not a store class: use MemoryStore, RocksDBStore or a subclass of "
                "streamrt.state.Store"
            )
        if not (isinstance(self.transaction, type) and issubclass(self.transaction, Transaction)):
            raise ArgumentTypeError(
                f"{self.transaction!r} is not a transaction class: use StoreTransaction, TimedTransaction or another "
                "subclass of streamrt.state.base.Transaction"
            )

    def begin(
        self, partition: StorePartition, options: RocksDBOptions | None = None, changelog: bool = True
    ) -> Transaction:
        """Begin a transaction over an open partition of the store.

        Args:
            partition: the open store partition.
            options: the options of the application.
            changelog: whether there is a changelog.
        """
        transaction = self.transaction(partition, options, changelog)
        if isinstance(transaction, StoreTransaction):
            transaction.store = self.name
        return transaction


@dataclass(frozen=True)
class ProcessStoreSpec(StoreSpec):
    """Describe the store of a process function.

    Attributes:
        delay_ms: how much later than its time a timer of event time is due, in milliseconds; None if ticks do not fire
            such timers.
        lag_ms: how far the watermark of a partition is behind its stream time; None if a generator makes it.
    """

    delay_ms: int | None = None
    lag_ms: int | None = 0

    def begin(  # noqa: D102
        self, partition: StorePartition, options: RocksDBOptions | None = None, changelog: bool = True
    ) -> Transaction:
        transaction = super().begin(partition, options, changelog)
        if isinstance(transaction, ProcessTransaction):
            transaction.delay_ms, transaction.lag_ms = self.delay_ms, self.lag_ms
        return transaction
