"""How the end of a source with an exception is told."""

from streamrt.errors import SourceError as SourceException

__all__ = ["SourceException"]
