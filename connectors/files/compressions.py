"""Decompression of files, as streams."""

import bz2
import gzip
import lzma
from typing import Any, BinaryIO, Literal, cast, get_args

from streamrt.errors import argument_error

__all__ = ["CompressionName", "checked_compression", "decompressed"]

CompressionName = Literal["gz", "gzip", "bz2", "xz"]

_OPENERS: dict[str, Any] = {
    "gz": lambda stream: gzip.GzipFile(fileobj=stream, mode="rb"),
    "gzip": lambda stream: gzip.GzipFile(fileobj=stream, mode="rb"),
    "bz2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
}


def checked_compression(owner: str, compression: CompressionName | None) -> CompressionName | None:
    """Return the name of a compression, if it is known.

    Args:
        owner: the class that got it, for the error message.
        compression: the name, or None.

    Raises:
        ConfigurationError: if it is unknown.
    """
    if compression is not None and compression not in get_args(CompressionName):
        raise argument_error(
            f"{owner}(compression=...) must be None or one of {', '.join(get_args(CompressionName))}; got {compression!r}",
            of_type=isinstance(compression, str),
        )
    return compression


def decompressed(stream: BinaryIO, compression: CompressionName | None) -> BinaryIO:
    """Return a stream of the decompressed content. It can be sought, by reading up to the position.

    Args:
        stream: the stream of the file.
        compression: name of its compression, or None.

    Example:
        >>> import io
        >>> decompressed(io.BytesIO(gzip.compress(b"text")), "gzip").read()
        b'text'
    """
    return stream if compression is None else cast("BinaryIO", _OPENERS[compression](stream))
