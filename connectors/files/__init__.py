"""Contents of files: formats that sources read, formats that sinks write, and compressions."""

from streamrt.connectors.files.batch_formats import (
    BatchFormat,
    BatchFormatName,
    CSVBatchFormat,
    JSONBatchFormat,
    ParquetBatchFormat,
    resolve_batch_format,
)
from streamrt.connectors.files.compressions import CompressionName
from streamrt.connectors.files.formats import (
    CSVFormat,
    FileFormatError,
    Format,
    FormatName,
    JSONFormat,
    ParquetFormat,
    resolve_format,
)

__all__ = [
    "BatchFormat",
    "BatchFormatName",
    "CSVBatchFormat",
    "CSVFormat",
    "CompressionName",
    "FileFormatError",
    "Format",
    "FormatName",
    "JSONBatchFormat",
    "JSONFormat",
    "ParquetBatchFormat",
    "ParquetFormat",
    "resolve_batch_format",
    "resolve_format",
]
