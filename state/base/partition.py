"""The contract of store partitions, re-exported from `streamrt.state.store`."""

from streamrt.state.store import StorePartition

__all__ = ["StorePartition"]
