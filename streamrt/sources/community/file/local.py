"""A source of files of this machine."""

from streamrt.connectors import LocalFileSource

__all__ = ["LocalFileSource"]
