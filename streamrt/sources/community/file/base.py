"""The contract of file sources."""

from streamrt.connectors import FileSource

__all__ = ["FileSource"]
