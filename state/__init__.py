"""State of stream processors: the `State` interface, transactions, stores, and the changelog format."""

from streamrt.state.base import Transaction
from streamrt.state.changelog import (
    POSITION_KEY,
    Position,
    RestoredChanges,
    epoch_of,
    is_position,
    restore_changes,
)
from streamrt.state.encoding import Cell, dumps_exact, loads_exact, pack, unpack
from streamrt.state.identity import Stamp, StoreIdentity
from streamrt.state.memory import MemoryStore
from streamrt.state.options import CompressionType, RocksDBOptions
from streamrt.state.rocksdb import RocksDBStore, load_rocksdb
from streamrt.state.spec import StoreSpec
from streamrt.state.state import State
from streamrt.state.status import TransactionStatus
from streamrt.state.store import DEFAULT_STORE, Store, StorePartition
from streamrt.state.timed import NEVER, TimedTransaction
from streamrt.state.transaction import StoreTransaction, state_of

__all__ = [
    "DEFAULT_STORE",
    "NEVER",
    "POSITION_KEY",
    "Cell",
    "CompressionType",
    "MemoryStore",
    "Position",
    "RestoredChanges",
    "RocksDBOptions",
    "RocksDBStore",
    "Stamp",
    "State",
    "Store",
    "StoreIdentity",
    "StorePartition",
    "StoreSpec",
    "StoreTransaction",
    "TimedTransaction",
    "Transaction",
    "TransactionStatus",
    "dumps_exact",
    "epoch_of",
    "is_position",
    "load_rocksdb",
    "loads_exact",
    "pack",
    "restore_changes",
    "state_of",
    "unpack",
]
