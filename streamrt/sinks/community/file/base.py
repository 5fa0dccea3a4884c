"""The base class of file sinks."""

from streamrt.connectors import FileSink

__all__ = ["FileSink"]
