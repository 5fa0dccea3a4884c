"""Reads the elements of a JSON array one after the other: an array may be larger than memory, and may still be written."""

import codecs
import json
import re
from collections.abc import Iterator
from typing import BinaryIO

from streamrt.connectors.files.reading import FileFormatError, UnfinishedError

__all__ = ["array_elements"]

_BLOCK_BYTES = 256 * 1024
_LONGEST_ELEMENT = 64 * 1024 * 1024
# A literal, a number or an escape that ends here may go on behind it.
_TAIL = 16
_SPACE = re.compile(r"[ \t\r\n]*")


def array_elements(stream: BinaryIO, position: int) -> Iterator[tuple[bytes, int]]:
    r"""Yield the JSON of each element, with the number of the byte behind it.

    Args:
        stream: the array; it is at `position`.
        position: 0, or the number of the byte behind an element.

    Raises:
        FileFormatError: if the content is not an array.
        UnfinishedError: if it ends before the array does.

    Example:
        >>> import io
        >>> list(array_elements(io.BytesIO(b'[{"n": 1}, 2]'), 0))
        [(b'{"n": 1}', 9), (b'2', 12)]
    """
    text = _Text(stream, position)
    if not position:
        text.skip_space()
        if text.next() != "[":
            raise FileFormatError("it does not begin with [, so it is not a JSON array")
    first = not position
    while True:
        text.skip_space()
        following = text.peek()
        if following == "]":
            text.next()
            text.skip_space(to_end=True)
            if not text.at_end:
                raise FileFormatError(f"something follows the array at byte {text.position}")
            return
        if not first:
            if text.next() != ",":
                raise FileFormatError(f"the array has neither a comma nor its end at byte {text.position - 1}")
            text.skip_space()
        first = False
        element = text.element()
        yield element, text.position


class _Text:
    """The text of a stream, and the number of the byte at which it is."""

    def __init__(self, stream: BinaryIO, position: int) -> None:
        self.position = position
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig" if position == 0 else "utf-8")()
        self._bom = position == 0
        self._buffer = ""
        self._index = 0
        self._ended = False
        self._scan = json.JSONDecoder().raw_decode

    @property
    def at_end(self) -> bool:
        return self._ended and self._index == len(self._buffer)

    def peek(self) -> str:
        """Return the next character."""
        while self._index == len(self._buffer):
            if not self._read_more(_BLOCK_BYTES):
                raise UnfinishedError("its array has no end")
        return self._buffer[self._index]

    def next(self) -> str:
        """Take the next character."""
        found = self.peek()
        self._take_until(self._index + 1)
        return found

    def skip_space(self, *, to_end: bool = False) -> None:
        """Take white space, or what is left of it."""
        while True:
            match = _SPACE.match(self._buffer, self._index)
            self._take_until(match.end() if match else self._index)
            if self._index < len(self._buffer) or not self._read_more(_BLOCK_BYTES):
                break
        if not to_end:
            self.peek()

    def element(self) -> bytes:
        """Take one JSON document."""
        size = _BLOCK_BYTES
        while True:
            try:
                _, end = self._scan(self._buffer, self._index)
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated") or error.pos >= len(self._buffer) - _TAIL
                reason = error.msg
            except RecursionError:
                is_cut, reason = False, "it is nested too deeply"
            else:
                # A number may go on.
                if end < len(self._buffer) or self._ended or self._buffer[end - 1] in '}]"':
                    data = self._buffer[self._index : end].encode()
                    self._take_until(end)
                    if end == len(self._buffer) and self._ended and not data.endswith((b"}", b"]", b'"')):
                        raise UnfinishedError("its array has no end")
                    return data
                is_cut, reason = True, ""
            if not is_cut:
                raise FileFormatError(f"the element at byte {self.position} is not a JSON document: {reason}") from None
            if len(self._buffer) - self._index > _LONGEST_ELEMENT:
                raise FileFormatError(f"the element at byte {self.position} is longer than {_LONGEST_ELEMENT} bytes")
            if not self._read_more(size):
                raise UnfinishedError("its array has no end")
            size *= 2

    def _take_until(self, end: int) -> None:
        taken = self._buffer[self._index : end]
        self.position += len(taken) if taken.isascii() else len(taken.encode())
        self._index = end

    def _read_more(self, size: int) -> bool:
        """Read on; return whether there was something."""
        self._buffer, self._index = self._buffer[self._index :], 0
        while not self._ended:
            data = self._stream.read(size)
            self._ended = not data
            if self._bom and data:
                # A byte order mark is not a part of JSON, but counts.
                self.position += 3 if data.startswith(codecs.BOM_UTF8) else 0
                self._bom = False
            try:
                text = self._decoder.decode(data)
            except UnicodeDecodeError as error:
                raise FileFormatError(f"the array is not UTF-8 behind byte {self.position}: {error.reason}") from None
            if text:
                self._buffer += text
                return True
        return False
