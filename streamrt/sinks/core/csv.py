"""A sink of CSV files."""

from streamrt.connectors import CSVSink

__all__ = ["CSVSink"]
