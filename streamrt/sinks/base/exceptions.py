"""How a sink asks to be left alone for a while."""

from streamrt.connectors import SinkBackpressureError

__all__ = ["SinkBackpressureError"]
