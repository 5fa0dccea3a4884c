"""A sink that is a list."""

from streamrt.connectors import ListSink

__all__ = ["ListSink"]
