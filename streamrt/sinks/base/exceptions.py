"""The error by which a sink asks for a pause."""

from streamrt.connectors import SinkBackpressureError

__all__ = ["SinkBackpressureError"]
