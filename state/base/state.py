"""What operators see of a store: what `streamrt.state.state` has of it."""

from streamrt.state.state import State

__all__ = ["State"]
