"""The contract of store partitions: what `streamrt.state.store` has of it."""

from streamrt.state.store import StorePartition

__all__ = ["StorePartition"]
