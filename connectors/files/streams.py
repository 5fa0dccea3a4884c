"""Streams of files: of parts that are fetched one after the other, and with errors that can be told from those of formats."""

import io
from collections.abc import Callable
from typing import Any, BinaryIO, cast

__all__ = ["StorageError", "range_stream", "tagged"]

_BUFFER_BYTES = 1024 * 1024
_RANGE_BYTES = 4 * 1024 * 1024


class StorageError(Exception):
    """The file system failed; its error is the cause."""


class _Tagged(io.RawIOBase):
    """A stream that raises `StorageError` for all errors of another one."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._inner.seekable())

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._inner.read(len(buffer))
        except Exception as error:
            raise StorageError from error
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        try:
            return self._inner.seek(offset, whence)
        except Exception as error:
            raise StorageError from error

    def tell(self) -> int:
        return self._inner.tell()


def tagged(stream: BinaryIO) -> BinaryIO:
    r"""Return a buffered stream of the same content, which raises `StorageError` instead of any error.

    Args:
        stream: the stream of a file system. It is not closed with the result.

    Example:
        >>> tagged(io.BytesIO(b"one\ntwo\n")).readline()
        b'one\n'
    """
    return cast("BinaryIO", io.BufferedReader(_Tagged(stream), _BUFFER_BYTES))


class _Ranges(io.RawIOBase):
    """A stream of ranges that are fetched when they are read."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch = fetch
        self._size = size
        self._position = 0
        self._start = 0
        self._range = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._size - self._position
        if left <= 0:
            return 0
        if not self._start <= self._position < self._start + len(self._range):
            self._range = self._fetch(self._position, min(_RANGE_BYTES, left))
            self._start = self._position
        begin = self._position - self._start
        data = self._range[begin : begin + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position


def range_stream(fetch: Callable[[int, int], bytes], size: int) -> BinaryIO:
    """Return a stream of a file of which any range can be fetched. One range is in memory.

    Args:
        fetch: function of the first byte and the number of bytes; returns them.
        size: size of the file in bytes.

    Example:
        >>> stream = range_stream(lambda start, count: b"abcdef"[start : start + count], 6)
        >>> stream.seek(2), stream.read(3)
        (2, b'cde')
    """
    return cast("BinaryIO", _Ranges(fetch, size))
