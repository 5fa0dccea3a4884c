"""In-memory stores."""

from streamrt.state.memory.store import MemoryStore, MemoryStorePartition

__all__ = ["MemoryStore", "MemoryStorePartition"]
