"""Formats with a schema in each file: Parquet and Avro."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, ClassVar, cast

from streamrt.common.texts import one_line
from streamrt.connectors.files.compressions import CompressionName, decompressed
from streamrt.connectors.files.reading import (
    FileFormatError,
    Format,
    PositionBeyondEndError,
    UnfinishedError,
    damage_explained,
    only_records,
)
from streamrt.connectors.libraries import require_library

__all__ = ["AvroFormat", "ParquetFormat"]

_ROWS = 500
_PARQUET_MAGIC = b"PAR1"
_AVRO_MAGIC = b"Obj\x01"
# Values that Python has no type for, such as days of the year 10000.
_WITHOUT_PYTHON = (ValueError, OverflowError, ArithmeticError)
# What Arrow raises for damaged files, in addition to errors of its own.
_PARQUET_DAMAGE = (ArithmeticError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)


class ParquetFormat(Format):
    """Parquet. Records are dicts of the columns; positions are rows. Row groups are read in parts.

    Args:
        compression: compression around the whole files, which are then unpacked to a temporary file; by default, the
            extension of each file decides. It is not the compression inside Parquet files, which is recognized.

    Raises:
        ConfigurationError: if the compression is unknown.

    Example:
        ```python
        source = LocalFileSource("orders", file_format=ParquetFormat())
        ```
    """

    grows: ClassVar[bool] = False

    def deserialize(self, filestream: BinaryIO) -> Iterable[Any]:  # noqa: D102
        return (record for record, _ in only_records(self._iterate_items(filestream, 0, ended=True)))

    def read_from(self, filestream: BinaryIO, position: int) -> Iterator[tuple[Any, int]]:  # noqa: D102
        return only_records(self.items_from(filestream, position, ended=True))

    def items_from(self, filestream: BinaryIO, position: int, *, ended: bool) -> Iterator[tuple[Any, int]]:  # noqa: D102
        if self._compression in (None, "none") and filestream.seekable():
            yield from self._iterate_items(filestream, position, ended=ended)
            return
        # The index of a Parquet file is at its end, and a compressed stream has to be read again to go back.
        with tempfile.TemporaryFile() as unpacked:
            with damage_explained(ended=ended):
                shutil.copyfileobj(decompressed(filestream, self._compression), unpacked, 1024 * 1024)
            yield from self._iterate_items(cast("BinaryIO", unpacked), position, ended=ended)

    def _iterate_items(self, stream: BinaryIO, position: int, *, ended: bool) -> Iterator[tuple[Any, int]]:
        import pyarrow
        import pyarrow.parquet

        if not ended:
            _check_end(stream)
        try:
            # With a buffer, columns of large row groups are not loaded as a whole.
            file = pyarrow.parquet.ParquetFile(stream, buffer_size=1024 * 1024)
            _check_names(file.schema_arrow)
            if file.metadata.num_rows < 0:
                raise FileFormatError("it is not a Parquet file, or is damaged: its number of rows is negative")
            if position > file.metadata.num_rows:
                raise PositionBeyondEndError
            groups, start = _groups_from(file.metadata, position)
            for batch in file.iter_batches(_ROWS, row_groups=groups, use_threads=False):
                begin = max(0, position - start)
                start += batch.num_rows
                yield from zip(
                    _iterate_rows(batch.slice(begin), start - batch.num_rows + begin),
                    range(start - batch.num_rows + begin + 1, start + 1),
                    strict=True,
                )
        except (pyarrow.ArrowException, *_PARQUET_DAMAGE) as error:
            if isinstance(error, OSError) and error.errno is not None:
                # Of the stream, not of Arrow.
                raise
            lines = str(error).splitlines() or [type(error).__name__]
            raise FileFormatError(f"it is not a Parquet file, or is damaged: {one_line(lines[0])}") from error


class AvroFormat(Format):
    """Avro files, with the schema in each file. Records are what fastavro makes of them; positions are numbers of records.

    Needs the extra `avro`.

    Args:
        compression: compression around the whole files; by default, the extension of each file decides. It is not the codec
            inside Avro files, which is recognized.

    Raises:
        ConfigurationError: if the compression is unknown, or fastavro is not installed.

    Example:
        ```python
        source = LocalFileSource("orders", file_format="avro")
        ```
    """

    def __init__(self, compression: CompressionName | None = None) -> None:
        require_library("AvroFormat", "fastavro", "avro")
        super().__init__(compression)

    def deserialize(self, filestream: BinaryIO) -> Iterable[Any]:  # noqa: D102
        return (record for record, _ in self._iterate_items(filestream, 0, ended=True))

    def read_from(self, filestream: BinaryIO, position: int) -> Iterator[tuple[Any, int]]:  # noqa: D102
        return self.items_from(filestream, position, ended=True)

    def items_from(self, filestream: BinaryIO, position: int, *, ended: bool) -> Iterator[tuple[Any, int]]:  # noqa: D102
        with damage_explained(ended=ended):
            yield from self._iterate_items(decompressed(filestream, self._compression), position, ended=ended)

    def _iterate_items(self, stream: BinaryIO, position: int, *, ended: bool) -> Iterator[tuple[Any, int]]:
        import fastavro

        number = 0
        stage = "it is not an Avro file"
        # Other files look like cut ones to a reader that takes their bytes for lengths.
        begins = stream.read(len(_AVRO_MAGIC))
        if not _AVRO_MAGIC.startswith(begins):
            raise FileFormatError(stage)
        try:
            blocks = fastavro.block_reader(_Rejoined(begins, stream))
            stage = f"it is damaged behind record {position}"
            for block in blocks:
                if number + block.num_records <= position:
                    number += block.num_records
                    continue
                # Whole, so that a damaged block gives nothing.
                for record in list(block):
                    number += 1
                    if number > position:
                        stage = f"it is damaged behind record {number}"
                        yield record, number
        except (ValueError, EOFError, StopIteration, IndexError, KeyError) as error:
            if not ended and not stream.read(1):
                raise UnfinishedError("it ends within a block") from None
            # The messages of these errors may quote data.
            raise FileFormatError(f"{stage} ({type(error).__name__})") from None
        if number < position:
            raise PositionBeyondEndError


class _Rejoined:
    """A stream whose first bytes were read already; decompressed streams cannot go back."""

    def __init__(self, begins: bytes, stream: BinaryIO) -> None:
        self._begins = begins
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if not self._begins:
            return self._stream.read(size)
        part, self._begins = (self._begins, b"") if size < 0 else (self._begins[:size], self._begins[size:])
        return part + self._stream.read(size - len(part) if size >= 0 else -1)

    def tell(self) -> int:
        return self._stream.tell() - len(self._begins)


def _check_end(stream: BinaryIO) -> None:
    """Look whether a Parquet file has its end: it is written last."""
    size = stream.seek(0, 2)
    stream.seek(0)
    begins = stream.read(len(_PARQUET_MAGIC))
    stream.seek(max(0, size - len(_PARQUET_MAGIC)))
    ends = stream.read(len(_PARQUET_MAGIC))
    stream.seek(0)
    if _PARQUET_MAGIC.startswith(begins) and (ends != _PARQUET_MAGIC or size <= 2 * len(_PARQUET_MAGIC)):
        raise UnfinishedError("its index is missing")


def _check_names(schema: Any) -> None:
    """Refuse columns or fields of one name: a dict would lose all but the last."""
    import pyarrow

    names = [field.name for field in schema]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise FileFormatError(f"it has two columns with the name {repeated!r}")
    waiting = [field.type for field in schema]
    while waiting:
        kind = waiting.pop()
        fields = [kind.field(number) for number in range(kind.num_fields)]
        if pyarrow.types.is_struct(kind):
            _check_names(fields)
        else:
            waiting += [field.type for field in fields]


def _iterate_rows(batch: Any, first: int) -> Iterator[Any]:
    """Yield the rows of a batch as dicts, and errors for those with values that Python does not have."""
    try:
        yield from batch.to_pylist()
    except _WITHOUT_PYTHON:
        pass
    else:
        return
    for number in range(batch.num_rows):
        try:
            yield batch.slice(number, 1).to_pylist()[0]
        except _WITHOUT_PYTHON:
            yield FileFormatError(f"row {first + number} has {_odd_column(batch, number)} that Python does not have")


def _odd_column(batch: Any, number: int) -> str:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            column[number].as_py()
        except _WITHOUT_PYTHON:
            return f"a {field.type} in column {field.name!r}"
    return "a value"


def _groups_from(metadata: Any, position: int) -> tuple[list[int], int]:
    """Return the row groups that have rows from a position on, and the number of rows before them."""
    start = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if start + rows > position:
            return list(range(group, metadata.num_row_groups)), start
        start += rows
    return [], start
