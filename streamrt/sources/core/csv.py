"""A source of CSV files."""

from streamrt.connectors import CSVSource

__all__ = ["CSVSource"]
