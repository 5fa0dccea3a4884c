"""Sources that need nothing outside of the package."""

from streamrt.connectors import CSVSource

__all__ = ["CSVSource"]
