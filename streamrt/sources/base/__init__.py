"""Base classes and errors of sources."""

from streamrt.connectors import BaseSource, Source, StatefulSource
from streamrt.errors import SourceError as SourceException

__all__ = ["BaseSource", "Source", "SourceException", "StatefulSource"]
