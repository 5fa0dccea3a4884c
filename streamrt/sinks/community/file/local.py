"""A sink of files of this machine."""

from streamrt.connectors.file_sinks.local_file_sink import AppendNotSupported, LocalFileSink

__all__ = ["AppendNotSupported", "LocalFileSink"]
