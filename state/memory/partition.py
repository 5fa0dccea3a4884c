"""Partitions of in-memory stores, re-exported from `streamrt.state.memory.store`."""

from streamrt.state.memory.store import MemoryStorePartition

__all__ = ["MemoryStorePartition"]
