"""On-disk stores, with RocksDB."""

from streamrt.state.options import RocksDBOptions
from streamrt.state.rocksdb.store import (
    RocksDBStore,
    RocksDBStorePartition,
    block_cache_usage,
    delete_restorable,
    load_rocksdb,
)

__all__ = [
    "RocksDBOptions",
    "RocksDBStore",
    "RocksDBStorePartition",
    "block_cache_usage",
    "delete_restorable",
    "load_rocksdb",
]
