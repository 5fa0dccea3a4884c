"""The contract of formats that sources read."""

from streamrt.connectors.files import Format

__all__ = ["Format"]
