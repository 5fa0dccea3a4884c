"""Sinks that need nothing outside of the package."""

from streamrt.connectors import CSVSink, ListSink

__all__ = ["CSVSink", "ListSink"]
