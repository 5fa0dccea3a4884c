"""The rows of a query as bytes: one class for each media type that `POST /query` answers with."""

import io
from typing import Any, Protocol

import pyarrow as pa

from streamrt.errors import ResultTooLargeError
from streamrt.schema.types import has_floats

__all__ = ["FORMATS", "RowWriter", "choose_format", "open_writer"]

NDJSON, TABLE = "application/x-ndjson", "text/plain"
PARQUET, ARROW = "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"
FORMATS = (NDJSON, TABLE, PARQUET, ARROW)
"""The media types, the default first."""

_SHOWN_ROWS = 10_000


class RowWriter(Protocol):
    """Makes bytes of the rows of a query, as they come."""

    def add(self, batch: pa.RecordBatch) -> bytes:
        """Return the next bytes."""

    def end(self) -> bytes:
        """Return the last bytes."""


def choose_format(accept: str) -> str | None:
    """Return the media type that a caller prefers, of those that there are; None if it takes none of them.

    Args:
        accept: the header Accept; empty for any.

    Example:
        >>> choose_format("text/plain;q=0.5, application/vnd.apache.parquet"), choose_format("image/png")
        ('application/vnd.apache.parquet', None)
    """
    best, most = None, 0.0
    for part in accept.split(",") if accept.strip() else ["*/*"]:
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        quality = 1.0
        for each in parameters:
            if each.startswith("q="):
                try:
                    quality = float(each[2:])
                except ValueError:
                    quality = 0.0
        kind, _, rest = name.partition("/")
        fits = [each for each in FORMATS if name in (each, "*/*") or (rest == "*" and each.startswith(f"{kind}/"))]
        if fits and quality > most:
            best, most = fits[0], quality
    return best


def open_writer(media_type: str, schema: pa.Schema) -> RowWriter:
    """Return the writer of a format.

    Args:
        media_type: one of `FORMATS`.
        schema: the columns.
    """
    if media_type == TABLE:
        return _TableWriter(schema)
    if media_type == PARQUET:
        return _ParquetWriter(schema)
    return _ArrowWriter(schema) if media_type == ARROW else _JSONWriter(schema)


class _JSONWriter:
    def __init__(self, schema: pa.Schema) -> None:
        self._has_floats = any(map(has_floats, schema.types))

    def add(self, batch: pa.RecordBatch) -> bytes:
        from streamrt.serializers.rows import name_infinite, write_json

        rows = batch.to_pylist(maps_as_pydicts="strict")
        if self._has_floats:
            rows = [name_infinite(row) for row in rows]
        return b"".join(write_json(row) + b"\n" for row in rows)

    def end(self) -> bytes:
        return b""


class _TableWriter:
    """A table whose columns are as wide as their widest value, so it is made of all rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = list(schema.names)
        self._rows: list[dict[str, Any]] = []

    def add(self, batch: pa.RecordBatch) -> bytes:
        self._rows += batch.to_pylist(maps_as_pydicts="strict")
        if len(self._rows) > _SHOWN_ROWS:
            raise ResultTooLargeError(
                f"a table of text has {_SHOWN_ROWS:,} rows at most: give limit, or another format in the header Accept"
            )
        return b""

    def end(self) -> bytes:
        from streamrt.tables.reading.query_result import print_rows

        return f"{print_rows(self._names, self._rows)}\n".encode()


class _ArrowWriter:
    def __init__(self, schema: pa.Schema) -> None:
        self._pending = _Pending()
        self._writer = pa.ipc.new_stream(self._pending, schema)

    def add(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._pending.take()

    def end(self) -> bytes:
        self._writer.close()
        return self._pending.take()


class _ParquetWriter:
    def __init__(self, schema: pa.Schema) -> None:
        from pyarrow import parquet

        self._pending = _Pending()
        self._writer = parquet.ParquetWriter(self._pending, schema)

    def add(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._pending.take()

    def end(self) -> bytes:
        self._writer.close()
        return self._pending.take()


class _Pending(io.RawIOBase):
    """A file of which only what was not taken yet is in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        made = bytes(part)
        self._parts.append(made)
        self._size += len(made)
        return len(made)

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        made = b"".join(self._parts)
        self._parts.clear()
        return made
