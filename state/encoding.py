"""How keys and values of states become bytes: JSON by orjson, as `JSONSerializer` writes it, or by users' functions."""

from collections.abc import Callable
from typing import Any

import orjson

from streamrt.state.options import RocksDBOptions

__all__ = ["dumps_of", "loads_of"]


def dumps_of(options: RocksDBOptions) -> Callable[[Any], bytes]:
    """Return the function that makes bytes of a key or a value, and raises TypeError for what has no JSON form."""
    return _dumps if options.dumps is None else _Dumps(options.dumps)


def loads_of(options: RocksDBOptions) -> Callable[[bytes], Any]:
    """Return the function that reads them; it may raise ValueError."""
    return orjson.loads if options.loads is None else options.loads


def _dumps(value: Any, *, _dump: Any = orjson.dumps, _option: int = orjson.OPT_PASSTHROUGH_DATETIME) -> bytes:
    data: bytes = _dump(value, None, _option)
    return data


class _Dumps:
    """A user's function, made to give bytes and to raise TypeError for what has no JSON form."""

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
            raise TypeError(f"dumps gave {type(data).__name__} instead of bytes")
        return data
