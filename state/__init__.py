"""State of stream processors: the `State` interface, the stores, and the contracts of other stores."""

from streamrt.state.access.handles import AggregatingState, ListState, MapState, ReducingState, StateTtl, ValueState
from streamrt.state.access.state import State
from streamrt.state.identity import Stamp, StoreIdentity
from streamrt.state.memory import MemoryStore
from streamrt.state.options import RocksDBOptions
from streamrt.state.rocksdb import RocksDBStore
from streamrt.state.store import Store, StorePartition

__all__ = [
    "AggregatingState",
    "ListState",
    "MapState",
    "MemoryStore",
    "ReducingState",
    "RocksDBOptions",
    "RocksDBStore",
    "Stamp",
    "State",
    "StateTtl",
    "Store",
    "StoreIdentity",
    "StorePartition",
    "ValueState",
]
