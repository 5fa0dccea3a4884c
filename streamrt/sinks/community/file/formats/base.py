"""The contract of formats that sinks write."""

from streamrt.connectors.files import BatchFormat as Format

__all__ = ["Format"]
