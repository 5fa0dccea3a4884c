"""Formats of lines: JSON, CSV and text. Their positions are bytes of the decompressed content."""

import csv
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, ClassVar

import orjson

from streamrt.common.csv_rows import rows_of
from streamrt.connectors.argument_checks import checked_function, checked_type
from streamrt.connectors.files.compressions import CompressionName, decompressed
from streamrt.connectors.files.csv_dialects import dialect_settings
from streamrt.connectors.files.json_arrays import array_elements
from streamrt.connectors.files.reading import (
    FileFormatError,
    Format,
    PositionBeyondEndError,
    UnfinishedError,
    damage_explained,
    only_records,
    seek,
)

__all__ = ["BATCH_COLUMNS", "CSVFormat", "JSONFormat", "TextFormat"]

BATCH_COLUMNS = ("_timestamp", "_key", "_value")
"""The columns of a CSV file that a sink writes."""

_LONGEST_LINE = 64 * 1024 * 1024
_NO_LINE_END = "its last line has no line end"
_BOM = b"\xef\xbb\xbf"


class _LineFormat(Format):
    """Base of formats of lines."""

    counts_bytes: ClassVar[bool] = True

    def deserialize(self, filestream: BinaryIO) -> Iterable[Any]:
        """Return the records of a file.

        Args:
            filestream: the decompressed content. The caller closes it.
        """
        return (record for record, _ in only_records(self._iterate_items(filestream, 0, ended=True)))

    def read_from(self, filestream: BinaryIO, position: int) -> Iterator[tuple[Any, int]]:
        return only_records(self.items_from(filestream, position, ended=True))

    def items_from(self, filestream: BinaryIO, position: int, *, ended: bool) -> Iterator[tuple[Any, int]]:
        with damage_explained(ended=ended):
            yield from self._iterate_items(decompressed(filestream, self._compression), position, ended=ended)

    def _iterate_items(self, stream: BinaryIO, position: int, *, ended: bool) -> Iterator[tuple[Any, int]]:
        """Yield records of lines, or errors in their places, with the positions behind them."""
        seek(stream, position)
        for line, start, end in _lines(stream, position):
            if isinstance(line, FileFormatError):
                yield line, end
                continue
            # A byte order mark is not a part of the text.
            text = line.removeprefix(_BOM) if start == 0 else line
            if ended or text.endswith(b"\n"):
                if text.strip():
                    yield self._make_item(text, start), end
            elif text.strip():
                if not self._is_complete(text):
                    raise UnfinishedError(_NO_LINE_END)
                yield self._make_item(text, start), end

    def _make_item(self, text: bytes, start: int) -> Any:
        """Return the record of a line, or the error."""
        raise NotImplementedError

    def _is_complete(self, text: bytes) -> bool:
        """Return whether nothing can follow a line that has no end yet."""
        return False


class TextFormat(_LineFormat):
    r"""Text in UTF-8: each line is a record, without its line end; empty lines are passed over. Positions are bytes.

    Args:
        compression: compression of the files; by default, the extension of each file decides.

    Raises:
        ConfigurationError: if the compression is unknown.

    Example:
        >>> import io
        >>> list(TextFormat().read(io.BytesIO(b"one\r\ntwo\n")))
        ['one', 'two']
    """

    def _make_item(self, text: bytes, start: int) -> Any:
        try:
            return text.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            return FileFormatError(f"the line at byte {start} is not UTF-8: {error.reason}", text)


class JSONFormat(_LineFormat):
    r"""JSON lines: one JSON document on each line; empty lines are passed over. Positions are bytes.

    Args:
        compression: compression of the files; by default, the extension of each file decides.
        loads: function from the text of a document to the record; orjson by default.
        array: whether each file is one array, whose elements are the records, instead of lines.

    Raises:
        ConfigurationError: if the compression is unknown or `loads` is not a function.

    Example:
        >>> import io
        >>> list(JSONFormat().read(io.BytesIO(b'{"n": 1}\n{"n": 2}\n')))
        [{'n': 1}, {'n': 2}]
        >>> list(JSONFormat(array=True).read(io.BytesIO(b'[{"n": 1},\n {"n": 2}]')))
        [{'n': 1}, {'n': 2}]
    """

    def __init__(
        self,
        compression: CompressionName | None = None,
        loads: Callable[[str], Any] | None = None,
        *,
        array: bool = False,
    ) -> None:
        super().__init__(compression)
        self._loads = checked_function("JSONFormat", "loads", loads, optional=True)
        self._array = checked_type("JSONFormat", "array", array, bool, "a bool")

    def _iterate_items(self, stream: BinaryIO, position: int, *, ended: bool) -> Iterator[tuple[Any, int]]:
        if not self._array:
            yield from super()._iterate_items(stream, position, ended=ended)
            return
        seek(stream, position)
        try:
            for data, end in array_elements(stream, position):
                yield self._make_record(data, f"the element that ends at byte {end}"), end
        except UnfinishedError as error:
            if not ended:
                raise
            raise FileFormatError(str(error)) from None

    def _make_item(self, text: bytes, start: int) -> Any:
        return self._make_record(text, f"the line at byte {start}")

    def _is_complete(self, text: bytes) -> bool:
        # Digits may follow a number. Objects, arrays and strings end with their last character.
        if not text.strip().startswith((b"{", b"[", b'"')):
            return False
        return not isinstance(self._make_record(text, ""), FileFormatError)

    def _make_record(self, text: bytes, where: str) -> Any:
        try:
            return orjson.loads(text) if self._loads is None else self._loads(text.decode())
        except (orjson.JSONDecodeError, UnicodeDecodeError) as error:
            reason = getattr(error, "msg", None) or getattr(error, "reason", "")
        except Exception as error:  # noqa: BLE001 - its text may quote the value
            reason = f"loads failed with {type(error).__name__}"
        # Made here, because the error of the parser holds the whole line.
        return FileFormatError(f"{where} is not a JSON document: {reason}", text)


class CSVFormat(_LineFormat):
    r"""CSV, UTF-8, with the names of the columns in the first row. Records are dicts of strings; positions are bytes.

    Files of `CSVBatchFormat` are recognized by their first row, and give records with the same values as were written.

    Args:
        compression: compression of the files; by default, the extension of each file decides.
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

    def _iterate_items(self, stream: BinaryIO, position: int, *, ended: bool) -> Iterator[tuple[Any, int]]:
        text = _Text(stream, 0, ended=ended)
        names = next(self._iterate_rows(text), None)
        if isinstance(names, FileFormatError):
            raise names
        if names is None:
            if text.unfinished:
                raise UnfinishedError(_NO_LINE_END)
            if position:
                raise PositionBeyondEndError
            return
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise FileFormatError(f"its first row names the column {repeated!r} twice")
        if position:
            seek(stream, position, text.position)
            text = _Text(stream, position, ended=ended)
        batched = names == list(BATCH_COLUMNS)
        for row in self._iterate_rows(text):
            if isinstance(row, FileFormatError):
                yield row, text.position
            elif row and len(row) != len(names):
                yield (
                    FileFormatError(
                        f"the row that ends at byte {text.position} has {len(row)} fields, but the first row has "
                        f"{len(names)}",
                        text.row(),
                    ),
                    text.position,
                )
            elif row:
                record = _make_batched(row, text) if batched else dict(zip(names, row, strict=True))
                yield record, text.position
        if text.unfinished:
            raise UnfinishedError(_NO_LINE_END)

    def _iterate_rows(self, text: "_Text") -> Iterator[Any]:
        """Yield rows, and errors in the places of those that cannot be read."""
        rows = rows_of(text, self._dialect)
        while True:
            text.begin_row()
            try:
                row = next(rows, None)
            except csv.Error as error:
                yield FileFormatError(f"the row at byte {text.position} is not CSV: {error}", text.row())
                continue
            except FileFormatError as error:
                yield error
                continue
            if row is None:
                return
            if text.exhausted:
                # The reader has asked for more: a quote is open.
                if text.ended:
                    where = f"the row that ends at byte {text.position}"
                    yield FileFormatError(f"{where} has a quote without an end", text.row())
                text.unfinished = not text.ended
                return
            yield row


class _Text:
    """Lines of a UTF-8 text, and the position after the last one that was taken.

    Args:
        stream: the text.
        position: where the stream is.
        ended: whether a last line without a line end is complete.

    Attributes:
        position: the position behind the last line.
        exhausted: whether there are no more lines.
        unfinished: whether the text ends within a row.
    """

    def __init__(self, stream: BinaryIO, position: int, *, ended: bool) -> None:
        self._lines = _lines(stream, position)
        self.ended = ended
        self.position = position
        self.exhausted = self.unfinished = False
        self._row: list[bytes] = []

    def begin_row(self) -> None:
        """Forget the bytes of the last row."""
        self._row = []

    def row(self) -> bytes:
        """Return the bytes of the row."""
        return b"".join(self._row)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        found = next(self._lines, None)
        if found is None:
            self.exhausted = True
            raise StopIteration
        line, start, end = found
        if not isinstance(line, FileFormatError) and not self.ended and not line.endswith(b"\n"):
            self.exhausted = True
            self.unfinished = bool(line.strip())
            raise StopIteration
        self.position = end
        if isinstance(line, FileFormatError):
            raise line
        self._row.append(line)
        try:
            return line.decode("utf-8-sig" if start == 0 else "utf-8")
        except UnicodeDecodeError as error:
            raise FileFormatError(f"the line at byte {start} is not UTF-8: {error.reason}", line) from None


def _lines(stream: BinaryIO, position: int) -> Iterator[tuple[bytes | FileFormatError, int, int]]:
    """Yield the lines from the current position on, with the positions at which they begin and end."""
    while line := stream.readline(_LONGEST_LINE):
        start, position = position, position + len(line)
        found: bytes | FileFormatError = line
        if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
            found = FileFormatError(f"the line at byte {start} is longer than {_LONGEST_LINE} bytes")
            while line and not line.endswith(b"\n"):
                line = stream.readline(_LONGEST_LINE)
                position += len(line)
        yield found, start, position


def _make_batched(row: list[str], text: _Text) -> Any:
    """Return the record of a row of `CSVBatchFormat`, or the error."""
    timestamp, key, value = row
    try:
        return {"_timestamp": int(timestamp), "_key": key or None, "_value": orjson.loads(value)}
    except ValueError:
        # No cause, because it would hold the value.
        return FileFormatError(
            f"the row that ends at byte {text.position} has no integer in _timestamp, or no JSON in _value", text.row()
        )
