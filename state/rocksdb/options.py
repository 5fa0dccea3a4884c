"""Settings of on-disk stores, re-exported from `streamrt.state.options`."""

from streamrt.state.options import RocksDBOptions

__all__ = ["RocksDBOptions"]
