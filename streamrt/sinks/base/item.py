"""One value on its way into a sink."""

from streamrt.connectors import SinkItem

__all__ = ["SinkItem"]
