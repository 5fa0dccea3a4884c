"""One value for a sink."""

from streamrt.connectors import SinkItem

__all__ = ["SinkItem"]
