"""A sink of files of this machine."""

from streamrt.connectors.sinks.local_files import AppendNotSupported, LocalFileSink

__all__ = ["AppendNotSupported", "LocalFileSink"]
