"""Decompression of files, as streams."""

import bz2
import gzip
import io
import lzma
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Literal, cast, get_args

from streamrt.connectors.argument_checks import checked_type
from streamrt.connectors.files.streams import tagged

__all__ = ["CompressionName", "checked_compression", "compression_of", "decompressed"]

CompressionName = Literal["gz", "gzip", "bz2", "xz", "zst", "zstd", "none"]

_BUFFER_BYTES = 256 * 1024
_EXTENSIONS: dict[str, CompressionName] = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".zstd": "zstd"}


class _Zstandard(io.RawIOBase):
    """The content of a file of Zstandard, with the decompressor of pyarrow. It cannot be sought."""

    def __init__(self, stream: BinaryIO) -> None:
        import pyarrow

        # pyarrow closes what it reads.
        self._inner = pyarrow.CompressedInputStream(tagged(stream), "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._inner.read(len(buffer))
        except OSError as error:
            if "Truncated" in str(error):
                # As the other decompressors do.
                raise EOFError("Compressed file ended before the end-of-stream marker was reached") from None
            raise
        buffer[: len(data)] = data
        return len(data)


def _open_zstandard(stream: BinaryIO) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(_Zstandard(stream), _BUFFER_BYTES))


_OPENERS: dict[str, Any] = {
    "gz": lambda stream: gzip.GzipFile(fileobj=stream, mode="rb"),
    "gzip": lambda stream: gzip.GzipFile(fileobj=stream, mode="rb"),
    "bz2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "zst": _open_zstandard,
    "zstd": _open_zstandard,
}


def checked_compression(owner: str, compression: CompressionName | None) -> CompressionName | None:
    """Return the name of a compression, if it is known.

    Args:
        owner: the class that got it, for the error message.
        compression: the name, or None.

    Raises:
        ConfigurationError: if it is unknown.
    """
    names = get_args(CompressionName)
    wanted = f"None or one of {', '.join(names)}"
    return checked_type(owner, "compression", compression, str, wanted, lambda name: name in names, optional=True)


def compression_of(path: str) -> CompressionName | None:
    """Return the compression that the extension of a file names, or None.

    Args:
        path: the path.

    Example:
        >>> compression_of("orders/monday.jsonl.zst"), compression_of("orders/monday.jsonl")
        ('zstd', None)
    """
    return _EXTENSIONS.get(PurePosixPath(path).suffix.lower())


def decompressed(stream: BinaryIO, compression: CompressionName | None) -> BinaryIO:
    """Return a stream of the decompressed content.

    Args:
        stream: the stream of the file.
        compression: name of its compression, "none" or None.

    Example:
        >>> import io
        >>> decompressed(io.BytesIO(gzip.compress(b"text")), "gzip").read()
        b'text'
    """
    return stream if compression in (None, "none") else cast("BinaryIO", _OPENERS[str(compression)](stream))
