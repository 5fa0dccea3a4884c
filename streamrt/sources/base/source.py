"""The base classes of sources."""

from streamrt.connectors import BaseSource, Source, StatefulSource

__all__ = ["BaseSource", "Source", "StatefulSource"]
