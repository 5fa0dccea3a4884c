"""The state interface for operators, re-exported from `streamrt.state.state`."""

from streamrt.state.state import State

__all__ = ["State"]
