"""Unions of sets of integers: Roaring bitmaps (https://roaringbitmap.org) in the portable format, by pyroaring."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamrt.errors import ConfigurationError, SchemaMismatchError
from streamrt.extras import install_command

if TYPE_CHECKING:
    from streamrt.schema import Column

__all__ = ["make_union"]


def make_union(function: str, column: Column) -> Callable[[Any, Any], Any]:
    """Return the function that combines two bitmaps, or a bitmap and null. Equal sets give equal bytes.

    Args:
        function: "rbm32", for integers from 0 to 2 ** 32 - 1, or "rbm64", for those to 2 ** 64 - 1.
        column: the column.

    Raises:
        ConfigurationError: if the library is not installed.

    Example:
        >>> from pyroaring import BitMap
        >>> from streamrt.schema import Schema
        >>> unite = make_union("rbm32", Schema("users BINARY").fields[0])
        >>> list(BitMap.deserialize(unite(BitMap([1, 2]).serialize(), BitMap([2, 7]).serialize())))
        [1, 2, 7]
    """
    try:
        import pyroaring
    except ImportError as error:
        raise ConfigurationError(
            f"Aggregate({column.name}={function!r}) needs the library pyroaring, the extra 'bitmaps': "
            f"{install_command('bitmaps')}"
        ) from error
    kind = pyroaring.BitMap if function == "rbm32" else pyroaring.BitMap64

    def read(data: bytes) -> Any:
        try:
            if not data:
                raise ValueError("it has no bytes")
            return kind.deserialize(data)
        except (ValueError, IndexError) as error:
            bits = function.removeprefix("rbm")
            raise SchemaMismatchError(
                f"column {column.name!r} must be a Roaring bitmap of {bits} bits in the portable format: {error}"
            ) from None

    def unite(present: Any, given: Any) -> Any:
        if given is None:
            return present
        bitmap = read(given)
        if present is not None:
            bitmap |= read(present)
        bitmap.run_optimize()
        return bitmap.serialize()

    return unite
