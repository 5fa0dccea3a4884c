"""Formats of files that sources read."""

from streamrt.connectors.files import Format, FormatName, JSONFormat, ParquetFormat

__all__ = ["Format", "FormatName", "JSONFormat", "ParquetFormat"]
