"""Marks of content: what a source has read of a file, so that the file is recognized whatever its name and size are now."""

import hashlib
import io
from typing import Any, BinaryIO, NamedTuple, cast

__all__ = ["Mark", "Observed"]

_HEAD_BYTES = 64 * 1024
_SPAN_BYTES = 16 * 1024 * 1024
_BLOCK_BYTES = 1024 * 1024


class Mark(NamedTuple):
    """A hash of what was read: of the first 64 KiB at most, and of a span of up to 16 MiB before the position.

    Attributes:
        start: first byte of the span.
        end: the byte behind it.
        digest: the hash.
    """

    start: int
    end: int
    digest: str

    @classmethod
    def of_end(cls, stream: BinaryIO) -> "Mark | None":
        """Return the mark of the end of a stream that can be sought; None if it is empty.

        Args:
            stream: the stream.

        Example:
            >>> Mark.of_end(io.BytesIO(b"content")).fits(io.BytesIO(b"content"))
            True
        """
        end = stream.seek(0, io.SEEK_END)
        start = max(0, end - _BLOCK_BYTES)
        stream.seek(0)
        head = stream.read(min(_HEAD_BYTES, end))
        stream.seek(start)
        return cls(start, end, _make_digest(head, hashlib.blake2b(stream.read(end - start)))) if end else None

    def fits(self, stream: BinaryIO) -> bool:
        """Return whether a stream has the content that was marked.

        Args:
            stream: the stream, at its beginning.
        """
        head = _read_bytes(stream, min(_HEAD_BYTES, self.end))
        span = hashlib.blake2b(head[self.start :])
        at = len(head)
        if at < self.start:
            if stream.seekable():
                at = stream.seek(self.start)
            while at < self.start and (skipped := len(stream.read(min(_BLOCK_BYTES, self.start - at)))):
                at += skipped
        while at < self.end and (data := stream.read(min(_BLOCK_BYTES, self.end - at))):
            span.update(data)
            at += len(data)
        return at == self.end and _make_digest(head, span) == self.digest


class Observed(io.RawIOBase):
    r"""A stream that marks what is read through it.

    Args:
        inner: the stream, at its beginning.
        seekable: whether it can be sought.

    Example:
        >>> observed = Observed(io.BytesIO(b"one\ntwo\n"), seekable=True)
        >>> stream = io.BufferedReader(observed)
        >>> stream.readline()
        b'one\n'
        >>> observed.mark(4).fits(io.BytesIO(b"one\nthree\n")), observed.mark(8).fits(io.BytesIO(b"one\nthree\n"))
        (True, False)
    """

    def __init__(self, inner: BinaryIO, *, seekable: bool) -> None:
        self._inner = inner
        self._seekable = seekable
        self._at = 0
        self._head = bytearray()
        self._span: Any = hashlib.blake2b()
        self._start = self._end = 0
        # Read, and not part of the span yet: a mark may be asked for before it.
        self._pending = bytearray()

    def readable(self) -> bool:  # noqa: D102
        return True

    def seekable(self) -> bool:  # noqa: D102
        return self._seekable

    def readinto(self, buffer: Any) -> int:  # noqa: D102
        data = self._inner.read(len(buffer))
        buffer[: len(data)] = data
        if self._at <= len(self._head) < _HEAD_BYTES:
            self._head += data[len(self._head) - self._at : _HEAD_BYTES - self._at]
        known = self._end + len(self._pending)
        if not self._start <= self._at <= known:
            self._restart_at(self._at)
            known = self._at
        self._pending += data[known - self._at :]
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:  # noqa: D102
        self._at = self._inner.seek(offset, whence)
        return self._at

    def tell(self) -> int:  # noqa: D102
        return self._at

    def look_at(self, position: int) -> None:
        """Read the beginning, and what is before a position, so that a mark has both. The stream is then at its beginning.

        Args:
            position: where reading begins.
        """
        if self._seekable and position:
            for start in {0, max(0, position - _HEAD_BYTES)}:
                self.seek(start)
                _read_bytes(cast("BinaryIO", self), min(_HEAD_BYTES, position))
            self.seek(0)

    def mark(self, position: int | None = None) -> Mark | None:
        """Return a mark of what was read; None if there is none.

        Args:
            position: the byte before which it ends; by default the last one that was read.
        """
        end = self._end + len(self._pending) if position is None else position
        if not self._end <= end <= self._end + len(self._pending):
            return None
        count = end - self._end
        if self._end - self._start > _SPAN_BYTES and count:
            self._span, self._start = hashlib.blake2b(), self._end
        self._span.update(self._pending[:count])
        del self._pending[:count]
        self._end = end
        head = bytes(self._head[:end])
        if end == self._start or len(head) < min(_HEAD_BYTES, end):
            return None
        return Mark(self._start, end, _make_digest(head, self._span))

    def _restart_at(self, at: int) -> None:
        self._span, self._pending = hashlib.blake2b(), bytearray()
        self._start = self._end = at


def _make_digest(head: bytes, span: Any) -> str:
    return hashlib.blake2b(head + span.digest(), digest_size=16).hexdigest()


def _read_bytes(stream: BinaryIO, count: int) -> bytes:
    """Return so many bytes, or all that there are."""
    found = bytearray()
    while len(found) < count and (data := stream.read(count - len(found))):
        found += data
    return bytes(found)
