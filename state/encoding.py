"""Encoding of state keys and values as bytes: JSON by orjson, as in `JSONSerializer`, or by the user's functions.

**Exact JSON** is for values that must be read back exactly, such as sums. orjson writes NaN and infinities as null, and
refuses integers beyond 64 bits. Values that contain them are written by the json module, which supports them, and begin
with `~`, which no JSON text does. Values with dates, times, Decimals or bytes, such as those of table rows, begin with
`@`, and these are tagged objects (`typed_values.py`). Versions before that form refuse such values.
"""

import json
import math
from collections.abc import Callable
from typing import Any

import orjson

from streamrt.errors import SerializationError, StoreCorruptedError
from streamrt.state.options import RocksDBOptions
from streamrt.state.typed_values import TYPED, read_tagged, tag_all, write_tagged

__all__ = ["Cell", "dumps_exact", "dumps_of", "loads_exact", "loads_of", "pack", "packing_of", "unpack"]

Cell = int | float | str | bool | None
"""Form of a user's value inside a head: numbers, booleans and None unchanged, every other value encoded as a str."""

PLAIN_TYPES = frozenset((int, float, bool, type(None)))
"""Types of immutable values, which are their own cells."""

_EXACT_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_MARK = b"~"
_TYPED_MARK = b"@"
_MARKS = frozenset((_MARK, _TYPED_MARK))
_OBJECT, _TAGGED = b'{"$', b'{ "$'
"""Begin objects of users, and those of `write_tagged`: orjson writes no spaces, and quotes inside of strings are escaped."""
_decode_typed = json.JSONDecoder(object_hook=read_tagged).raw_decode


def dumps_of(options: RocksDBOptions) -> Callable[[Any], bytes]:
    """Return the function that encodes a key or a value; it raises TypeError for an object without a JSON form."""
    return _dumps if options.dumps is None else _Dumps(options.dumps)


def loads_of(options: RocksDBOptions) -> Callable[[bytes], Any]:
    """Return the function that decodes a value; it may raise ValueError."""
    return orjson.loads if options.loads is None else options.loads


def dumps_exact(value: Any) -> bytes:
    """Encode a value so that `loads_exact` returns an equal one.

    Numbers are preserved, floats bit for bit; only the sign and the payload of a NaN may change. Tuples become lists.

    Args:
        value: nested lists, tuples and dicts with str keys, of int, float, str, bool, None, date, datetime, time, timedelta,
            Decimal and bytes.

    Raises:
        SerializationError: if the value contains another type.

    Example:
        >>> dumps_exact([1, 0.5, "a"])
        b'[1,0.5,"a"]'
        >>> dumps_exact([2**64, float("inf")])
        b'~[18446744073709551616, Infinity]'
        >>> dumps_exact({"photo": b"a"})
        b'@{"photo":{"$bytes":"YQ=="}}'
    """
    try:
        data = orjson.dumps(value, _as_json, _EXACT_OPTIONS)
    except TypeError as error:
        # The reason may be only a large number, a lone surrogate, or deep nesting.
        return _dumps_all(value, error)
    if _TAGGED in data:
        if _OBJECT in data or (b"null" in data and _has_more_than_json(value)):
            return _dumps_all(value, None)
        return _TYPED_MARK + data.replace(_TAGGED, _OBJECT)
    # Null stands for None as well as for NaN and infinities; the comparison detects a loss without a loop.
    if b"null" in data and orjson.loads(data) != value and _has_more_than_json(value):
        return _dumps_all(value, None)
    return data


def loads_exact(data: bytes) -> Any:
    """Decode a value that `dumps_exact` encoded.

    Raises:
        StoreCorruptedError: if the bytes are not JSON.

    Example:
        >>> loads_exact(dumps_exact((1, -0.0, 10**30)))
        [1, -0.0, 1000000000000000000000000000000]
    """
    try:
        if data[:1] in _MARKS:
            return _loads_marked(data.decode())
        return orjson.loads(data)
    except ValueError as error:
        raise StoreCorruptedError(f"a value in the store is not JSON ({error}): {data[:40]!r}") from error


def pack(value: Any) -> Cell:
    """Return the cell of a user's value; later changes to the object do not affect it.

    Raises:
        SerializationError: if the value cannot be stored exactly.

    Example:
        >>> pack(5), pack("five"), pack({"five": 5})
        (5, '"five"', '{"five":5}')
    """
    return value if type(value) in PLAIN_TYPES else dumps_exact(value).decode()


def unpack(cell: Cell) -> Any:
    """Return the value of a cell, as a new object.

    Example:
        >>> unpack(pack({"five": (5,)}))
        {'five': [5]}
    """
    if type(cell) is not str:
        return cell
    return _loads_marked(cell) if cell[:1] in "~@" else orjson.loads(cell)


def packing_of(options: RocksDBOptions) -> tuple[Callable[[Any], Cell], Callable[[Cell], Any]]:
    """Return the functions that encode and decode cells: `pack` and `unpack`, or versions with the user's functions."""
    if options.dumps is None and options.loads is None:
        return pack, unpack
    dumps, loads = exact_of(options)

    def pack_by_user(value: Any) -> Cell:
        # latin-1 maps any bytes to text of the same length.
        return value if type(value) in PLAIN_TYPES else dumps(value).decode("latin-1")

    def unpack_by_user(cell: Cell) -> Any:
        return loads(cell.encode("latin-1")) if type(cell) is str else cell

    return pack_by_user, unpack_by_user


def exact_of(options: RocksDBOptions) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return the functions that encode and decode users' values exactly; the user's functions if configured.

    Both raise SerializationError, for values that cannot be encoded or decoded.
    """
    dumps = dumps_exact if options.dumps is None else _Clear(_Dumps(options.dumps), "has no stored form")
    loads = loads_exact if options.loads is None else _Clear(options.loads, "cannot be read by RocksDBOptions.loads")
    return dumps, loads


def _dumps(value: Any, *, _dump: Any = orjson.dumps, _option: int = orjson.OPT_PASSTHROUGH_DATETIME) -> bytes:
    data: bytes = _dump(value, None, _option)
    return data


def _as_json(value: Any) -> Any:
    """Convert types that orjson does not support: those that have a tag, named tuples, and subclasses of float."""
    if type(value) in TYPED:
        return write_tagged(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def _has_more_than_json(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return False
    return any(map(_has_more_than_json, value))


def _loads_marked(text: str) -> Any:
    if text[:1] == "~":
        return json.loads(text[1:])
    value, end = _decode_typed(text, 1)
    if end != len(text):
        raise ValueError("there is more behind the value")
    return value


def _dumps_all(value: Any, cause: TypeError | None) -> bytes:
    try:
        if _check_value(value):
            return _TYPED_MARK + json.dumps(tag_all(value)).encode()
        return _MARK + json.dumps(value).encode()
    except RecursionError:
        reason = "it is nested too deeply or contains itself"
    except (TypeError, ValueError) as error:
        reason = str(error)
    raise SerializationError(
        f"a value of type {type(value).__name__} cannot be stored exactly: {reason}; use only lists, dicts with str "
        "keys, numbers, Decimal, str, bytes, bool, date, datetime, time, timedelta and None"
    ) from cause


def _check_value(value: Any) -> bool:
    """Return whether a value has tagged objects; raise TypeError for one that the json module would change."""
    if value is None or isinstance(value, str | float):
        return False
    if isinstance(value, int):
        int.__repr__(value)  # raises ValueError where Python allows no more digits
        return False
    if type(value) in TYPED:
        return True
    typed = False
    if isinstance(value, list | tuple):
        for item in value:
            typed = _check_value(item) or typed
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} of a dict is not a str")
            typed = _check_value(item) or typed
    else:
        raise TypeError(f"{type(value).__name__} is not a JSON type")
    return typed


class _Dumps:
    """Wrap a user's function: return bytes, and raise TypeError for an object without a JSON form."""

    __slots__ = ("_dumps",)

    def __init__(self, dumps: Any) -> None:
        self._dumps = dumps

    def __call__(self, value: Any) -> bytes:
        try:
            data = self._dumps(value)
        except Exception as error:
            raise TypeError(f"{type(error).__name__}: {error}") from error
        if isinstance(data, str):
            return data.encode()
        if not isinstance(data, bytes):
            raise TypeError(f"dumps returned {type(data).__name__} instead of bytes")
        return data


class _Clear:
    """Wrap a user's function: report its exceptions as clear errors."""

    __slots__ = ("_function", "_what")

    def __init__(self, function: Callable[[Any], Any], what: str) -> None:
        self._function = function
        self._what = what

    def __call__(self, value: Any) -> Any:
        try:
            return self._function(value)
        except Exception as error:
            raise SerializationError(f"a value of type {type(value).__name__} {self._what}: {error}") from error
