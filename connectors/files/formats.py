"""Formats of files that sources read, by their names."""

from typing import Literal

from streamrt.connectors.files.compressions import CompressionName
from streamrt.connectors.files.container_formats import AvroFormat, ParquetFormat
from streamrt.connectors.files.line_formats import BATCH_COLUMNS, CSVFormat, JSONFormat, TextFormat
from streamrt.connectors.files.reading import FileFormatError, Format, PositionBeyondEndError
from streamrt.errors import ArgumentValueError, argument_error

__all__ = [
    "BATCH_COLUMNS",
    "AvroFormat",
    "CSVFormat",
    "FileFormatError",
    "Format",
    "FormatName",
    "JSONFormat",
    "ParquetFormat",
    "PositionBeyondEndError",
    "TextFormat",
    "resolve_format",
]

FormatName = Literal["json", "csv", "text", "parquet", "avro"]

_FORMATS: dict[str, type[Format]] = {
    "json": JSONFormat,
    "csv": CSVFormat,
    "text": TextFormat,
    "parquet": ParquetFormat,
    "avro": AvroFormat,
}


def resolve_format(file_format: FormatName | Format, compression: CompressionName | None) -> Format:
    """Return the format of a name, or a format as it is.

    Args:
        file_format: name of a format, or a format, which has its own compression.
        compression: compression of the files, for a name.

    Raises:
        ConfigurationError: if the format or the compression is unknown, or the compression is given twice.

    Example:
        >>> resolve_format("csv", "gzip").compression
        'gzip'
    """
    if isinstance(file_format, Format):
        if compression not in (None, file_format.compression):
            raise ArgumentValueError(
                f"compression={compression!r} contradicts the file_format, which reads {file_format.compression!r}: pass the "
                "compression to the format"
            )
        return file_format
    if not isinstance(file_format, str) or file_format not in _FORMATS:
        raise argument_error(
            f"file_format must be one of {', '.join(_FORMATS)}, or a Format; got {file_format!r}",
            of_type=isinstance(file_format, str),
        )
    return _FORMATS[file_format](compression)
