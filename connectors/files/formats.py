"""Formats of files that sources read. Each reads a stream record by record, from any position on."""

import abc
import csv
import gzip
import itertools
import lzma
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal, cast

import orjson

from streamrt.connectors.dialects import dialect_settings
from streamrt.connectors.files.compressions import CompressionName, checked_compression, decompressed
from streamrt.errors import SourceError, argument_error

__all__ = ["CSVFormat", "FileFormatError", "Format", "FormatName", "JSONFormat", "ParquetFormat", "resolve_format"]

FormatName = Literal["json", "parquet", "csv"]

_LONGEST_LINE = 64 * 1024 * 1024
_BLOCK_BYTES = 1024 * 1024
_ROWS = 500
# zlib.error and LZMAError derive from Exception alone; EOFError is a compressed file that ends too early.
_DAMAGE = (zlib.error, lzma.LZMAError, EOFError)


class FileFormatError(SourceError):
    """A file, or a record in it, does not have the format that the source expects."""


class PositionBeyondEndError(Exception):
    """A file is shorter than the position from which it should be read."""


class Format(abc.ABC):
    """Base class of file formats that a file source reads.

    A record is any object; the functions of the source take its key, value and timestamp out of it.

    Args:
        compression: compression of the files: "gzip", "bz2" or "xz"; None for uncompressed files.

    Raises:
        ConfigurationError: if the compression is unknown.

    Example:
        >>> class Words(Format):
        ...     def deserialize(self, filestream):
        ...         for line in filestream:
        ...             yield from line.decode().split()
        >>> import gzip, io
        >>> list(Words("gzip").read(io.BytesIO(gzip.compress(b"one two"))))
        ['one', 'two']
    """

    # A class attribute, so that a subclass that forgets super().__init__() still works.
    _compression: CompressionName | None = None

    def __init__(self, compression: CompressionName | None = None) -> None:
        self._compression = checked_compression(type(self).__name__, compression)

    @property
    def compression(self) -> CompressionName | None:
        """Compression of the files, or None."""
        return self._compression

    @abc.abstractmethod
    def deserialize(self, filestream: BinaryIO) -> Iterable[Any]:
        """Return the records of a file, one after the other.

        Args:
            filestream: the decompressed content. The caller closes it.

        Raises:
            FileFormatError: if a record cannot be read.
        """

    def read(self, filestream: BinaryIO) -> Iterable[Any]:
        """Decompress a file and return its records.

        Args:
            filestream: the file. The caller closes it.

        Raises:
            FileFormatError: if a record cannot be read.
        """
        return (record for record, _ in self.read_from(filestream, 0))

    def read_from(self, filestream: BinaryIO, position: int) -> Iterator[tuple[Any, int]]:
        """Decompress a file and return its records from a position on, each with the position after it.

        Here, a position is a number of records, and earlier records are read and dropped. Formats that can do better define
        positions in their own way; 0 is always the beginning.

        Args:
            filestream: the file. The caller closes it.
            position: a position that was returned before for the same file, or 0.

        Raises:
            FileFormatError: if a record cannot be read.
            PositionBeyondEndError: if the file has fewer records than `position`.
        """
        with _damage_explained():
            records = iter(self.deserialize(decompressed(filestream, self._compression)))
            skipped = sum(1 for _ in itertools.islice(records, position))
            if skipped < position:
                raise PositionBeyondEndError
            yield from zip(records, itertools.count(position + 1), strict=False)


class JSONFormat(Format):
    r"""JSON lines: one JSON document on each line; empty lines are passed over. Positions are bytes.

    Args:
        compression: compression of the files.
        loads: function from the text of a line to the record; orjson by default.

    Raises:
        ConfigurationError: if the compression is unknown or `loads` is not a function.

    Example:
        >>> import io
        >>> list(JSONFormat().read(io.BytesIO(b'{"n": 1}\n{"n": 2}\n')))
        [{'n': 1}, {'n': 2}]
    """

    def __init__(self, compression: CompressionName | None = None, loads: Callable[[str], Any] | None = None) -> None:
        super().__init__(compression)
        if loads is not None and not callable(loads):
            raise argument_error(f"JSONFormat(loads=...) must be a function, got {type(loads).__name__}", of_type=False)
        self._loads = loads

    def deserialize(self, filestream: BinaryIO) -> Iterable[Any]:  # noqa: D102
        return (record for record, _ in self._records(filestream, 0))

    def read_from(self, filestream: BinaryIO, position: int) -> Iterator[tuple[Any, int]]:  # noqa: D102
        with _damage_explained():
            stream = decompressed(filestream, self._compression)
            _seek(stream, position)
            yield from self._records(stream, position)

    def _records(self, stream: BinaryIO, position: int) -> Iterator[tuple[Any, int]]:
        for line, start in _lines(stream, position):
            # A byte order mark is no part of JSON.
            text = line.removeprefix(b"\xef\xbb\xbf") if start == 0 else line
            if text.strip():
                yield self._record(text, start), start + len(line)

    def _record(self, text: bytes, start: int) -> Any:
        try:
            return orjson.loads(text) if self._loads is None else self._loads(text.decode())
        except (orjson.JSONDecodeError, UnicodeDecodeError) as error:
            reason = getattr(error, "msg", None) or getattr(error, "reason", "")
        except Exception as error:  # noqa: BLE001 - its text may quote the value
            reason = f"loads failed with {type(error).__name__}"
        # Raised here, because the error of the parser holds the whole line.
        raise FileFormatError(f"the line at byte {start} is not a JSON document: {reason}")


class CSVFormat(Format):
    r"""CSV, UTF-8, with the names of the columns in the first row. Records are dicts of strings; positions are bytes.

    Files of `CSVBatchFormat` are recognized by their first row, and give records with the same values as were written.

    Args:
        compression: compression of the files.
        dialect: name of a dialect of the module `csv`.

    Raises:
        ConfigurationError: if the compression or the dialect is unknown.

    Example:
        >>> import io
        >>> list(CSVFormat().read(io.BytesIO(b"sku,n\r\na,1\r\n")))
        [{'sku': 'a', 'n': '1'}]
    """

    def __init__(self, compression: CompressionName | None = None, dialect: str = "excel") -> None:
        super().__init__(compression)
        self._dialect = dialect_settings(dialect, "CSVFormat")

    def deserialize(self, filestream: BinaryIO) -> Iterable[Any]:  # noqa: D102
        return (record for record, _ in self._records(filestream, 0))

    def read_from(self, filestream: BinaryIO, position: int) -> Iterator[tuple[Any, int]]:  # noqa: D102
        with _damage_explained():
            yield from self._records(decompressed(filestream, self._compression), position)

    def _records(self, stream: BinaryIO, position: int) -> Iterator[tuple[Any, int]]:
        text = _Text(stream, 0)
        names = next(self._rows(text), None)
        if names is None:
            if position:
                raise PositionBeyondEndError
            return
        if len(set(names)) < len(names):
            raise FileFormatError(f"its first row names the column {_first_repeated(names)!r} twice")
        if position:
            _seek(stream, position)
            text = _Text(stream, position)
        batched = names == list(BATCH_COLUMNS)
        for row in self._rows(text):
            if not row:
                continue
            if len(row) != len(names):
                raise FileFormatError(
                    f"the row that ends at byte {text.position} has {len(row)} fields, but the first row has {len(names)}"
                )
            yield _batched(row, text.position) if batched else dict(zip(names, row, strict=True)), text.position

    def _rows(self, text: "_Text") -> Iterator[list[str]]:
        rows = csv.reader(text, **self._dialect)
        while True:
            try:
                row = next(rows, None)
            except csv.Error as error:
                raise FileFormatError(f"the row at byte {text.position} is not CSV: {error}") from error
            if row is None:
                return
            yield row


class ParquetFormat(Format):
    """Parquet. Records are dicts of the columns; positions are rows. Row groups are read in parts.

    Args:
        compression: compression around the whole files, which are then unpacked to a temporary file. It is not the
            compression inside Parquet files, which is recognized.

    Raises:
        ConfigurationError: if the compression is unknown.

    Example:
        ```python
        source = LocalFileSource("orders", file_format=ParquetFormat())
        ```
    """

    def __init__(self, compression: CompressionName | None = None) -> None:
        super().__init__(compression)

    def deserialize(self, filestream: BinaryIO) -> Iterable[Any]:  # noqa: D102
        return (record for record, _ in self._records(filestream, 0))

    def read_from(self, filestream: BinaryIO, position: int) -> Iterator[tuple[Any, int]]:  # noqa: D102
        if self._compression is None and filestream.seekable():
            yield from self._records(filestream, position)
            return
        # The index of a Parquet file is at its end, and a compressed stream has to be read again to go back.
        with tempfile.TemporaryFile() as unpacked:
            with _damage_explained():
                shutil.copyfileobj(decompressed(filestream, self._compression), unpacked, 1024 * 1024)
            yield from self._records(cast("BinaryIO", unpacked), position)

    def _records(self, stream: BinaryIO, position: int) -> Iterator[tuple[Any, int]]:
        import pyarrow
        import pyarrow.parquet

        try:
            # With a buffer, columns of large row groups are not loaded as a whole.
            file = pyarrow.parquet.ParquetFile(stream, buffer_size=1024 * 1024)
            if position > file.metadata.num_rows:
                raise PositionBeyondEndError
            groups, start = _groups_from(file.metadata, position)
            for batch in file.iter_batches(_ROWS, row_groups=groups, use_threads=False):
                begin = max(0, position - start)
                start += batch.num_rows
                for number, row in enumerate(batch.slice(begin).to_pylist(), start - batch.num_rows + begin + 1):
                    yield row, number
        except pyarrow.ArrowException as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise FileFormatError(f"it is not a Parquet file, or is damaged: {lines[0]}") from error


BATCH_COLUMNS = ("_timestamp", "_key", "_value")
"""The columns of a CSV file that a sink writes."""

_FORMATS: dict[str, type[Format]] = {"json": JSONFormat, "parquet": ParquetFormat, "csv": CSVFormat}


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
            raise argument_error(
                f"compression={compression!r} contradicts the file_format, which reads {file_format.compression!r}: pass the "
                "compression to the format",
                of_type=True,
            )
        return file_format
    if not isinstance(file_format, str) or file_format not in _FORMATS:
        raise argument_error(
            f"file_format must be one of {', '.join(_FORMATS)}, or a Format; got {file_format!r}",
            of_type=isinstance(file_format, str),
        )
    return _FORMATS[file_format](compression)


class _Text:
    """Lines of a UTF-8 text, and the position after the last one that was taken.

    Args:
        stream: the text.
        position: where the stream is.
    """

    def __init__(self, stream: BinaryIO, position: int) -> None:
        self._lines = _lines(stream, position)
        self.position = position

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line, start = next(self._lines)
        self.position = start + len(line)
        try:
            return line.decode("utf-8-sig" if start == 0 else "utf-8")
        except UnicodeDecodeError as error:
            raise FileFormatError(f"the line at byte {start} is not UTF-8: {error.reason}") from None


def _lines(stream: BinaryIO, position: int) -> Iterator[tuple[bytes, int]]:
    """Yield the lines from the current position on, with the positions at which they begin."""
    while line := stream.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise FileFormatError(f"the line at byte {position} is longer than {_LONGEST_LINE} bytes")
        yield line, position
        position += len(line)


def _seek(stream: BinaryIO, position: int) -> None:
    """Go to a position; its last byte must be there."""
    if position:
        if stream.seekable():
            stream.seek(position - 1)
        else:
            for start in range(0, position - 1, _BLOCK_BYTES):
                stream.read(min(_BLOCK_BYTES, position - 1 - start))
        if not stream.read(1):
            raise PositionBeyondEndError


def _batched(row: list[str], position: int) -> dict[str, Any]:
    """Return the record of a row of `CSVBatchFormat`."""
    timestamp, key, value = row
    try:
        return {"_timestamp": int(timestamp), "_key": key or None, "_value": orjson.loads(value)}
    except ValueError:
        # No cause, because it would hold the value.
        raise FileFormatError(
            f"the row that ends at byte {position} has no integer in _timestamp, or no JSON in _value"
        ) from None


def _groups_from(metadata: Any, position: int) -> tuple[list[int], int]:
    """Return the row groups that have rows from a position on, and the number of rows before them."""
    start = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if start + rows > position:
            return list(range(group, metadata.num_row_groups)), start
        start += rows
    return [], start


def _first_repeated(names: list[str]) -> str:
    return next(name for name in names if names.count(name) > 1)


@contextmanager
def _damage_explained() -> Iterator[None]:
    """Turn the errors of decompressors into one sentence."""
    try:
        yield
    except _DAMAGE as error:
        raise FileFormatError(f"it cannot be decompressed: {str(error) or type(error).__name__}") from error
    except OSError as error:
        # Decompressors raise OSError without a number for foreign data; the file system's errors have one.
        if error.errno is not None or type(error) not in (OSError, gzip.BadGzipFile):
            raise
        # The error of gzip quotes the first bytes.
        raise FileFormatError(f"it cannot be decompressed: {str(error).partition(' (')[0]}") from None
