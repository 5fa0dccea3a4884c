"""The contract of stores, re-exported from `streamrt.state.store`."""

from streamrt.state.store import Store

__all__ = ["Store"]
