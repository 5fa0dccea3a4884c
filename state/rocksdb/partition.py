"""Partitions of on-disk stores, re-exported from `streamrt.state.rocksdb.store`."""

from streamrt.state.rocksdb.store import RocksDBStorePartition

__all__ = ["RocksDBStorePartition"]
