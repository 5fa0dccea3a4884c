"""`CSVSink`: results as rows of a CSV file.

Invariants of the file:

- The first line is the header. A file with another first line does not belong to this sink and is left unchanged.
- A writer holds an exclusive lock (`flock`) on the file, so that several processes can append.
- A batch is appended as complete lines. A process that dies while it writes leaves a part of one. The next writer cuts
  it off: the batch was not flushed, so its records are delivered again.

A line end inside a quoted field does not end a row. The number of quote characters before the end of a row is even, so
counting them distinguishes the two.
"""

import csv
import io
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamrt.common.file_lock import FileLock
from streamrt.connectors.files.csv_dialects import dialect_settings
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.errors import ConfigurationError, SinkError

__all__ = ["CSVSink"]

_COLUMNS = ("key", "value", "timestamp", "topic", "partition", "offset")
_BLOCK_BYTES = 1 << 20


class CSVSink(BatchingSink):
    """Appends values to one CSV file, for debugging and small results.

    The columns are key, value, timestamp (ms), topic, partition and offset, below a header. Several processes of one
    machine may write to the same file; on a cluster, each machine writes a separate file. A row is on disk before
    offsets are committed. After a crash rows may repeat: identify them by (topic, partition, offset).

    Args:
        path: the file, UTF-8. The sink creates it if it does not exist; its directory must exist.
        dialect: name of a dialect of the module `csv`.
        key_serializer: turns a key into text.
        value_serializer: turns a value into text.

    Raises:
        ConfigurationError: if the dialect is unknown.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "out.csv")
        >>> sink = CSVSink(str(path), key_serializer=bytes.decode)
        >>> sink.start()
        >>> sink.add({"n": 1}, b"a", 1_000, None, "orders", 0, 41)
        >>> sink.flush()
        >>> print(path.read_text().replace(chr(13), ""), end="")
        key,value,timestamp,topic,partition,offset
        a,"{""n"": 1}",1000,orders,0,41
    """

    def __init__(
        self,
        path: str | Path,
        dialect: str = "excel",
        key_serializer: Callable[[Any], str] = str,
        value_serializer: Callable[[Any], str] = json.dumps,
    ) -> None:
        super().__init__()
        self._dialect = dialect_settings(dialect, "CSVSink")
        if not self._dialect["lineterminator"].endswith("\n"):
            raise ConfigurationError(f"CSVSink cannot use dialect {dialect!r}: its lines do not end with a line feed")
        # Processes that run tasks may have another working directory.
        self._path = Path(path).absolute()
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._checked: tuple[tuple[int, int], int] | None = None

    def setup(self) -> None:
        """Check that the file can be written; cut off the partial batch of a writer that died.

        Raises:
            SinkError: if it cannot be written, or is not a file of this sink.
        """
        self._append_rows(b"")

    def write(self, batch: SinkBatch) -> None:
        """Append one batch.

        Args:
            batch: the values of one partition.

        Raises:
            SinkError: if a value cannot be serialized or the file cannot be written.
        """
        text = io.StringIO(newline="")
        writer = csv.writer(text, **self._dialect)
        for item in batch:
            try:
                writer.writerow(self._make_row(item, batch))
            except (csv.Error, TypeError, ValueError) as error:
                raise SinkError(
                    f"{batch.topic}[{batch.partition}] offset {item.offset} cannot be written to {self._path}: {error}; "
                    "key_serializer and value_serializer must return text that the dialect can hold",
                    batch.record_of(item),
                ) from error
        try:
            data = text.getvalue().encode()
        except UnicodeEncodeError as error:
            raise SinkError(
                f"the records {batch.first_offset} to {batch.last_offset} of {batch.topic}[{batch.partition}] cannot be "
                f"written to {self._path}: {error.object[error.start : error.end]!r} has no form in UTF-8",
                self._without_utf8(batch),
            ) from error
        self._append_rows(data)

    def _without_utf8(self, batch: SinkBatch) -> tuple[str, int, int] | None:
        """Return the first record whose row has no form in UTF-8."""
        for item in batch:
            try:
                "".join(map(str, self._make_row(item, batch))).encode()
            except UnicodeEncodeError:
                return batch.record_of(item)
        return None

    def _make_row(self, item: SinkItem, batch: SinkBatch) -> tuple[Any, ...]:
        key, value = self._key_serializer(item.key), self._value_serializer(item.value)
        return key, value, item.timestamp, batch.topic, batch.partition, item.offset

    def _append_rows(self, rows: bytes) -> None:
        try:
            # Opened each time: a file that was moved away in the meantime is created again.
            with FileLock.acquire(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644) as lock:
                self._append_locked(lock.fileno(), rows)
        except FileNotFoundError as error:
            raise SinkError(
                f"CSVSink cannot write {self._path}: there is no directory {self._path.parent}; create it first"
            ) from error
        except OSError as error:
            raise SinkError(f"CSVSink cannot write {self._path}: {error.strerror or error}") from error

    def _append_locked(self, descriptor: int, rows: bytes) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SinkError(f"CSVSink cannot write {self._path}: it is not a regular file")
        file = (status.st_dev, status.st_ino)
        size = status.st_size
        known = self._checked[1] if self._checked is not None and self._checked[0] == file else 0
        if size != known:
            size = self._repair_file(descriptor, size, known if known < size else 0)
        data = rows if size else self._make_header() + rows
        _write_all(descriptor, data, size)
        self._checked = (file, size + len(data))

    def _make_header(self) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text, **self._dialect).writerow(_COLUMNS)
        return text.getvalue().encode()

    def _repair_file(self, descriptor: int, size: int, known: int) -> int:
        """Return the size up to which the file is valid, and truncate the rest.

        Args:
            descriptor: descriptor of the file, which is locked.
            size: size of the file in bytes.
            known: size up to which the file is known to be valid.
        """
        header = self._make_header()
        start = os.pread(descriptor, len(header), 0)
        if header.startswith(start) and start != header:
            os.ftruncate(descriptor, 0)
            return 0
        if start != header:
            raise SinkError(
                f"CSVSink leaves {self._path} unchanged: its first line is not the header of this sink and dialect; "
                "give another path, or move that file away"
            )
        tail = _last_line(descriptor, size)
        quote = self._quote()
        quotes = 0 if quote is None else _count_character(descriptor, quote, known, size - len(tail))
        if quotes % 2:
            raise SinkError(
                f"CSVSink leaves {self._path} unchanged: it ends inside a quoted field, because a writer died or "
                "the file was edited; repair its last rows, or move it away"
            )
        if tail:
            os.ftruncate(descriptor, size - len(tail))
        return size - len(tail)

    def _quote(self) -> bytes | None:
        """Return the quote character, or None in a dialect where counting it does not find the ends of rows."""
        quote: str | None = self._dialect["quotechar"]
        if self._dialect["quoting"] == csv.QUOTE_NONE or not self._dialect["doublequote"] or quote is None:
            return None
        return quote.encode()


def _write_all(descriptor: int, data: bytes, size: int) -> None:
    """Append to a file and wait for the disk. After a failure, such as a full disk, the file is as it was before."""
    if not data:
        return
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _last_line(descriptor: int, size: int) -> bytes:
    """Return the bytes after the last line end."""
    tail = b""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        block = os.pread(descriptor, end - start, start)
        newline = block.rfind(b"\n")
        if newline >= 0:
            return block[newline + 1 :] + tail
        tail = block + tail
        end = start
    return tail


def _count_character(descriptor: int, character: bytes, start: int, end: int) -> int:
    """Count a character in a part of a file."""
    count = 0
    while start < end:
        block = os.pread(descriptor, min(_BLOCK_BYTES, end - start), start)
        if not block:
            break
        count += block.count(character)
        start += len(block)
    return count
