"""The contract of stores: what `streamrt.state.store` has of it."""

from streamrt.state.store import Store

__all__ = ["Store"]
