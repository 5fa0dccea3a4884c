"""JSON lines that sources read."""

from streamrt.connectors.files import JSONFormat

__all__ = ["JSONFormat"]
