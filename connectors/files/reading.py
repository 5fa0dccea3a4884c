"""The contract of formats that file sources read, and what the formats share."""

import abc
import gzip
import itertools
import lzma
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, ClassVar

from streamrt.connectors.files.compressions import CompressionName, checked_compression, decompressed
from streamrt.errors import SourceError

__all__ = [
    "FileFormatError",
    "Format",
    "PositionBeyondEndError",
    "UnfinishedError",
    "damage_explained",
    "only_records",
    "seek",
]

_BLOCK_BYTES = 1024 * 1024
# zlib.error and LZMAError derive directly from Exception.
_DAMAGE = (zlib.error, lzma.LZMAError)


class FileFormatError(SourceError):
    """A file, or a record in it, does not have the format that the source expects.

    Attributes:
        data: the bytes of the record that cannot be read, if they are known; for a function that decides on it.
    """

    def __init__(self, message: str, data: bytes | None = None) -> None:
        super().__init__(message)
        self.data = data


class PositionBeyondEndError(Exception):
    """A file is shorter than the position from which it should be read."""


class UnfinishedError(Exception):
    """A file ends within a record: it may still be written. The argument says what is missing."""


class Format(abc.ABC):
    """Base class of file formats that a file source reads.

    A record is any object; the functions of the source take its key, value and timestamp out of it.

    Args:
        compression: compression of the files: "gzip", "bz2", "xz" or "zstd"; "none" for uncompressed files. By default, a
            source goes by the extension of each file.

    Attributes:
        grows: whether a file may get more records at its end. Otherwise a file that changes is another file.
        counts_bytes: whether positions are bytes of the decompressed content.

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

    grows: ClassVar[bool] = True
    counts_bytes: ClassVar[bool] = False
    # A class attribute, so that a subclass that forgets super().__init__() still works.
    _compression: CompressionName | None = None

    def __init__(self, compression: CompressionName | None = None) -> None:
        self._compression = checked_compression(type(self).__name__, compression)

    @property
    def compression(self) -> CompressionName | None:
        """Compression of the files; None if the extension of each file decides."""
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
        with damage_explained():
            records = iter(self.deserialize(decompressed(filestream, self._compression)))
            skipped = sum(1 for _ in itertools.islice(records, position))
            if skipped < position:
                raise PositionBeyondEndError
            yield from zip(records, itertools.count(position + 1), strict=False)

    def items_from(self, filestream: BinaryIO, position: int, *, ended: bool) -> Iterator[tuple[Any, int]]:
        """Do the same as `read_from` for a file that may still be written, and go on behind records that cannot be read.

        Args:
            filestream: the file. The caller closes it.
            position: a position that was returned before for the same file, or 0.
            ended: whether the file is complete.

        Yields:
            Each record, or the FileFormatError in its place, with the position after it.

        Raises:
            FileFormatError: if the rest of the file cannot be read.
            UnfinishedError: if `ended` is false and the file ends within a record.
            PositionBeyondEndError: if the file is shorter than `position`.
        """
        try:
            yield from self.read_from(filestream, position)
        except FileFormatError as error:
            if not ended and isinstance(error.__cause__, EOFError):
                raise UnfinishedError("its compressed data ends early") from None
            raise


def only_records(items: Iterable[tuple[Any, int]]) -> Iterator[tuple[Any, int]]:
    """Yield the items of `items_from`, and raise the first error among them."""
    for item, position in items:
        if isinstance(item, FileFormatError):
            raise item
        yield item, position


def seek(stream: BinaryIO, position: int, at: int = 0) -> None:
    """Go to a position; its last byte must be there.

    Args:
        stream: the stream.
        position: the position.
        at: where the stream is.

    Raises:
        PositionBeyondEndError: if the stream is shorter.
    """
    if position > at or (position and stream.seekable()):
        if stream.seekable():
            stream.seek(position - 1)
        else:
            for start in range(at, position - 1, _BLOCK_BYTES):
                stream.read(min(_BLOCK_BYTES, position - 1 - start))
        if not stream.read(1):
            raise PositionBeyondEndError


@contextmanager
def damage_explained(*, ended: bool = True) -> Iterator[None]:
    """Turn the errors of decompressors into one sentence.

    Args:
        ended: whether the file is complete; otherwise, data that ends early is an UnfinishedError.
    """
    try:
        yield
    except EOFError as error:
        if not ended:
            raise UnfinishedError("its compressed data ends early") from None
        raise FileFormatError(f"it cannot be decompressed: {str(error) or type(error).__name__}") from error
    except _DAMAGE as error:
        raise FileFormatError(f"it cannot be decompressed: {str(error) or type(error).__name__}") from error
    except OSError as error:
        # Decompressors raise OSError without a number for foreign data; the file system's errors have one.
        if error.errno is not None or type(error) not in (OSError, gzip.BadGzipFile):
            raise
        # The error of gzip quotes the first bytes.
        raise FileFormatError(f"it cannot be decompressed: {str(error).partition(' (')[0]}") from None
