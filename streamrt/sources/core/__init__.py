"""Sources without further dependencies."""

from streamrt.connectors import CSVSource

__all__ = ["CSVSource"]
