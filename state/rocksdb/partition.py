"""The partitions of stores on disk: what `streamrt.state.rocksdb.store` has of them."""

from streamrt.state.rocksdb.store import RocksDBStorePartition

__all__ = ["RocksDBStorePartition"]
