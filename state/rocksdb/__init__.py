"""On-disk stores, with RocksDB."""

from streamrt.state.options import RocksDBOptions
from streamrt.state.rocksdb.store import RocksDBStore, RocksDBStorePartition, delete_restorable, load_rocksdb

__all__ = ["RocksDBOptions", "RocksDBStore", "RocksDBStorePartition", "delete_restorable", "load_rocksdb"]
