"""How stores on disk work: what `streamrt.state.options` has for them."""

from streamrt.state.options import RocksDBOptions

__all__ = ["RocksDBOptions"]
