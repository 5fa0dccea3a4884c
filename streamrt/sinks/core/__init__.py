"""Sinks without further dependencies."""

from streamrt.connectors import CSVSink, ListSink

__all__ = ["CSVSink", "ListSink"]
