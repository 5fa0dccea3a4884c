"""The partitions of stores in memory: what `streamrt.state.memory.store` has of them."""

from streamrt.state.memory.store import MemoryStorePartition

__all__ = ["MemoryStorePartition"]
