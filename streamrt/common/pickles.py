"""Pickles of the user's functions, which keep the names of their files."""

import io
import types
from collections import ChainMap
from typing import Any, ClassVar

import cloudpickle

__all__ = ["dump_functions"]


def dump_functions(item: object) -> bytes:
    """Pickle an object with functions that other processes cannot import.

    From version 3.1.3 on, `cloudpickle.dumps` replaces the file names of functions. Errors would then name no file.

    Args:
        item: the object.

    Returns:
        Bytes for `pickle.loads`.

    Example:
        >>> import pickle
        >>> code = compile("lambda: 1", "shop.py", "eval")
        >>> pickle.loads(dump_functions(code)).co_filename
        'shop.py'
    """
    buffer = io.BytesIO()
    _Pickler(buffer).dump(item)
    return buffer.getvalue()


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    make, values = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return make, tuple(code.co_filename if value == "<dynamic-code>" else value for value in values)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table: ClassVar[ChainMap[type, Any]] = ChainMap(
        {types.CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )
