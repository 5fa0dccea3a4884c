"""Formats of files that sinks write."""

from streamrt.connectors.files import BatchFormat as Format
from streamrt.connectors.files import BatchFormatName as FormatName
from streamrt.connectors.files import JSONBatchFormat as JSONFormat
from streamrt.connectors.files import ParquetBatchFormat as ParquetFormat
from streamrt.connectors.files import resolve_batch_format as resolve_format
from streamrt.errors import ConfigurationError as InvalidFormatError

__all__ = ["Format", "FormatName", "InvalidFormatError", "JSONFormat", "ParquetFormat", "resolve_format"]
