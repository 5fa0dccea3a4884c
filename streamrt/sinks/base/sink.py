"""The base classes of sinks."""

from streamrt.connectors import BaseSink, BatchingSink

__all__ = ["BaseSink", "BatchingSink"]
