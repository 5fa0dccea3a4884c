"""The state interface for operators, re-exported from `streamrt.state.access.state`."""

from streamrt.state.access.state import State

__all__ = ["State"]
