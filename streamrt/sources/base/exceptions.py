"""The error of a source that failed."""

from streamrt.errors import SourceError as SourceException

__all__ = ["SourceException"]
