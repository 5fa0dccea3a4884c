"""`CSVSink`: results as rows of a CSV file.

The file, and what always holds of it:

- the first line is the header; a file that begins otherwise is not ours and is not touched;
- whoever writes holds an exclusive lock (`flock`) on it, so that several processes can append;
- a batch is appended as complete lines. A process that dies while it writes leaves a part of one, which the next writer
  cuts off: the batch was not flushed, so its records come again.

Line ends inside of quoted fields are no ends of rows. They are told apart by counting: in front of the end of a row
there is an even number of quote characters.
"""

import csv
import fcntl
import io
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamrt.connectors.dialects import dialect_settings
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.errors import ConfigurationError, SinkError

__all__ = ["CSVSink"]

_COLUMNS = ("key", "value", "timestamp", "topic", "partition", "offset")
_BLOCK_BYTES = 1 << 20


class CSVSink(BatchingSink):
    """Appends values to one CSV file, for debugging and small results.

    The columns are key, value, timestamp (ms), topic, partition and offset, below a header. Several processes of one
    machine may write to the same file; on a cluster, each machine writes a file of its own. A row is on the disk before
    offsets move. After a crash rows may repeat: (topic, partition, offset) tells which.

    Args:
        path: the file, UTF-8. It is created if it is not there; its directory must be.
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
            raise ConfigurationError(f"CSVSink has the dialect {dialect!r}, whose lines do not end with a line feed")
        # Processes that run tasks may have another working directory.
        self._path = Path(path).absolute()
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._checked: tuple[tuple[int, int], int] | None = None

    def setup(self) -> None:
        """Look whether the file can be written; cut off what a writer that died has left of a batch.

        Raises:
            SinkError: if it cannot, or is not a file of this sink.
        """
        self._append(b"")

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
                writer.writerow(self._row(item, batch))
            except (csv.Error, TypeError, ValueError) as error:
                raise SinkError(
                    f"{batch.topic}[{batch.partition}] offset {item.offset} cannot be written to {self._path}: {error}; "
                    "key_serializer and value_serializer must return text that the dialect can hold"
                ) from error
        try:
            data = text.getvalue().encode()
        except UnicodeEncodeError as error:
            raise SinkError(
                f"the records {batch.first_offset} to {batch.last_offset} of {batch.topic}[{batch.partition}] cannot be "
                f"written to {self._path}: {error.object[error.start : error.end]!r} has no form in UTF-8"
            ) from error
        self._append(data)

    def _row(self, item: SinkItem, batch: SinkBatch) -> tuple[Any, ...]:
        key, value = self._key_serializer(item.key), self._value_serializer(item.value)
        return key, value, item.timestamp, batch.topic, batch.partition, item.offset

    def _append(self, rows: bytes) -> None:
        try:
            # Opened anew each time: a file that was moved away meanwhile is made anew, too.
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                self._append_locked(descriptor, rows)
            finally:
                os.close(descriptor)
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
            size = self._repaired(descriptor, size, known if known < size else 0)
        data = rows if size else self._header() + rows
        _write_all(descriptor, data, size)
        self._checked = (file, size + len(data))

    def _header(self) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text, **self._dialect).writerow(_COLUMNS)
        return text.getvalue().encode()

    def _repaired(self, descriptor: int, size: int, known: int) -> int:
        """Return the size up to which the file is right, and cut off what comes behind.

        Args:
            descriptor: of the file, which is locked.
            size: its size in bytes.
            known: up to where it was right before.
        """
        header = self._header()
        start = os.pread(descriptor, len(header), 0)
        if header.startswith(start) and start != header:
            os.ftruncate(descriptor, 0)
            return 0
        if start != header:
            raise SinkError(
                f"CSVSink does not touch {self._path}: its first line is not the header of this sink and dialect; "
                "give another path, or move that file away"
            )
        tail = _last_line(descriptor, size)
        quote = self._quote()
        quotes = 0 if quote is None else _count(descriptor, quote, known, size - len(tail))
        if quotes % 2:
            raise SinkError(
                f"CSVSink does not touch {self._path}: it ends inside of a quoted field, because a process died while "
                "it wrote, or somebody has edited it; repair its last rows, or move it away"
            )
        if tail:
            os.ftruncate(descriptor, size - len(tail))
        return size - len(tail)

    def _quote(self) -> bytes | None:
        """Return the character whose number tells whether a line end is one, or None in a dialect without such."""
        quote: str | None = self._dialect["quotechar"]
        if self._dialect["quoting"] == csv.QUOTE_NONE or not self._dialect["doublequote"] or quote is None:
            return None
        return quote.encode()


def _write_all(descriptor: int, data: bytes, size: int) -> None:
    """Append to a file and wait for the disk; a failure, such as of a full disk, leaves the file as it was."""
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
    """Return what comes behind the last line end."""
    tail = b""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        block = os.pread(descriptor, end - start, start)
        place = block.rfind(b"\n")
        if place >= 0:
            return block[place + 1 :] + tail
        tail = block + tail
        end = start
    return tail


def _count(descriptor: int, character: bytes, start: int, end: int) -> int:
    """Return how often a character occurs in a part of a file."""
    count = 0
    while start < end:
        block = os.pread(descriptor, min(_BLOCK_BYTES, end - start), start)
        if not block:
            break
        count += block.count(character)
        start += len(block)
    return count
