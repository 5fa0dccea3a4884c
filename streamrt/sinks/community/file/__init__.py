"""Sinks of files."""

from streamrt.connectors import AzureFileSink, FileSink, LocalFileSink, S3FileSink

__all__ = ["AzureFileSink", "FileSink", "LocalFileSink", "S3FileSink"]
