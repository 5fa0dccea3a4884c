"""Contents of files: formats that sources read, formats that sinks write, and compressions."""

from streamrt.connectors.files.avro_batches import AvroBatchFormat
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
    AvroFormat,
    CSVFormat,
    FileFormatError,
    Format,
    FormatName,
    JSONFormat,
    ParquetFormat,
    TextFormat,
    resolve_format,
)

__all__ = [
    "AvroBatchFormat",
    "AvroFormat",
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
    "TextFormat",
    "resolve_batch_format",
    "resolve_format",
]
