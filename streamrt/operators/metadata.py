"""`set_timestamp` and `set_headers`: replace metadata of records."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.operators.functions import function_name, inlined_call
from streamrt.records import Headers
from streamrt.records.timestamps import LATEST_TIMESTAMP_MS
from streamrt.topology import InlinedCode, Operator


@dataclass(frozen=True)
class SetTimestamp(Operator):
    """Replaces the timestamp by the result of a function of value, key, timestamp and headers.

    Example:
        >>> SetTimestamp(lambda value, key, timestamp, headers: value["at_ms"]).name
        'set_timestamp'
    """

    name: ClassVar[str] = "set_timestamp"
    passes_on_last: ClassVar[bool] = True
    function: Callable[[Any, Any, int, Any], int]

    def inline(self, code: InlinedCode) -> bool:  # noqa: D102
        check = code.name_object(checked_timestamp)
        code.add_lines(f"timestamp = {check}({inlined_call(code, self.function, metadata=True)})")
        return True

    def describe(self) -> str:  # noqa: D102
        return function_name(self.function)


@dataclass(frozen=True)
class SetHeaders(Operator):
    """Replaces the headers by the result of a function of value, key, timestamp and headers.

    Example:
        >>> SetHeaders(lambda value, key, timestamp, headers: [("id", b"1")]).name
        'set_headers'
    """

    name: ClassVar[str] = "set_headers"
    passes_on_last: ClassVar[bool] = True
    function: Callable[[Any, Any, int, Any], Any]

    def inline(self, code: InlinedCode) -> bool:  # noqa: D102
        check = code.name_object(checked_headers)
        code.add_lines(f"headers = {check}({inlined_call(code, self.function, metadata=True)})")
        return True

    def describe(self) -> str:  # noqa: D102
        return function_name(self.function)


def checked_timestamp(timestamp: Any) -> int:
    """Return `timestamp` if Kafka can store it.

    Raises:
        TypeError: if `timestamp` is not an integer.
        ValueError: if `timestamp` is negative, or later than `LATEST_TIMESTAMP_MS`.
    """
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        raise TypeError(f"a timestamp must be an integer of milliseconds, got {type(timestamp).__name__}")
    if timestamp < 0:
        raise ValueError(f"a timestamp cannot be negative, got {timestamp}")
    if timestamp > LATEST_TIMESTAMP_MS:
        raise ValueError(
            f"a timestamp is in milliseconds and cannot be later than {LATEST_TIMESTAMP_MS} (64-bit microseconds), got "
            f"{timestamp}; divide microseconds by 1,000 and nanoseconds by 1,000,000"
        )
    return int(timestamp)


def checked_headers(headers: Any) -> Headers | None:
    """Return headers as a list of pairs; None stays None.

    Raises:
        TypeError: if `headers` is not a collection of (name, value) pairs.
    """
    if headers is None:
        return None
    if not isinstance(headers, Iterable):
        raise TypeError(f"headers must be a list of (name, value) pairs, got {type(headers).__name__}")
    pairs: Headers = []
    for pair in headers:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(f"headers must be a list of (name, value) pairs, got {pair!r} in it")
        name, value = pair
        if value is not None and not isinstance(value, str | bytes):
            raise TypeError(f"the value of header {name!r} must be bytes, str or None, got {type(value).__name__}")
        pairs.append((name, value))
    return pairs
