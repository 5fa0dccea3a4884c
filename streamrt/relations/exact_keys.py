"""Keys of values of rows: equal values have equal keys, whatever their types are."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from hashlib import blake2b
from typing import Any, Final, Literal

from streamrt.operators.functions import function_name
from streamrt.operators.group_by import ColumnKey
from streamrt.state.encoding import dumps_exact

__all__ = ["DIGEST_BYTES", "ExactKey", "GroupKey", "KeyNulls", "digest_row", "make_digest", "normalize_value"]

KeyNulls = Literal["skip", "apart", "equal"]
"""What rows with a null in their key get: no key, one that equals no other row's, or one in which null equals null."""

DIGEST_BYTES: Final = 16
"""Length of the digest of a row."""
# Of numbers with more digits, an equal int or float has another key.
_EXACT: Final = Context(prec=1_000)
_LONGEST: Final = 1_000


def normalize_value(value: Any) -> Any:
    """Return a value that has the same exact JSON as all values that are equal to it.

    Values are equal as in Python, so 1, 1.0, True and Decimal("1.00") are. NaN equals itself.

    Args:
        value: a value that a store can keep.

    Example:
        >>> [normalize_value(value) for value in (1, 1.0, True, Decimal("1.00"), -0.0, Decimal("1.50"), "1")]
        [1, 1, 1, 1, 0, 1.5, '1']
    """
    kind = type(value)
    if kind is str or kind is int or value is None:
        return value
    normalize = _NORMALIZERS.get(kind)
    return value if normalize is None else normalize(value)


def make_digest(row: Any) -> str:
    """Return a digest of a row; equal exact JSON has equal digests.

    Example:
        >>> make_digest({"a": 1}) == make_digest({"a": 1}), len(make_digest({}))
        (True, 32)
    """
    return digest_row(row).hex()


def digest_row(row: Any) -> bytes:
    """Return a digest of a row as bytes; equal exact JSON has equal digests."""
    return blake2b(dumps_exact(row), digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True)
class GroupKey:
    """Makes the key of a group, in which -0.0 is 0.0.

    The values stay what they are otherwise, because the rows of groups have them: a Decimal keeps its scale, which is that of
    its column.

    Attributes:
        key: function from a row to the key as it is.

    Example:
        >>> GroupKey(ColumnKey("a"))({"a": -0.0}), GroupKey(ColumnKey("a"))({"a": Decimal("1.50")})
        (0.0, Decimal('1.50'))
    """

    key: Callable[[Any], Any]

    def __call__(self, row: Any) -> Any:
        """Return the key."""
        return _unify(self.key(row))


@dataclass(frozen=True)
class ExactKey:
    """Makes a key of a row: a list of values of the row, in the form in which equal ones are equal bytes.

    Attributes:
        parts: functions of the row, one for each value.
        nulls: what a null in a value makes of the key. Keys "apart" are a list of null and a digest of the row, so the
            changes of a row have one key, and the rows are spread over partitions.

    Example:
        >>> ExactKey((ColumnKey("a"), ColumnKey("b")), "skip")({"a": 1.0, "b": "x"})
        [1, 'x']
    """

    parts: tuple[Callable[[Any], Any], ...]
    nulls: KeyNulls

    def __call__(self, row: Any) -> list[Any] | None:
        """Return the key of a row; None if it has none."""
        key = [normalize_value(part(row)) for part in self.parts]
        if None in key and self.nulls != "equal":
            return None if self.nulls == "skip" else [None, make_digest(row)]
        return key

    def describe(self) -> str:
        """Return the names of the columns and functions."""
        return ", ".join(part.column if isinstance(part, ColumnKey) else function_name(part) for part in self.parts)


def _unify(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is int:
        return value
    if kind is list:
        return [_unify(item) for item in value]
    if kind is float:
        return value + 0.0
    return {key: _unify(item) for key, item in value.items()} if kind is dict else value


def _normalize_float(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _normalize_decimal(value: Decimal) -> int | float | Decimal:
    if not value.is_finite():
        return float(value)
    if value.adjusted() > _LONGEST:
        return value.normalize(_EXACT)
    if value == value.to_integral_value():
        return int(value)
    near = float(value)
    return near if Decimal(near) == value else value.normalize(_EXACT)


def _normalize_datetime(value: datetime.datetime) -> datetime.datetime:
    return value if value.utcoffset() is None else value.astimezone(datetime.timezone.utc)


_NORMALIZERS: Final[dict[type, Callable[[Any], Any]]] = {
    bool: int,
    float: _normalize_float,
    Decimal: _normalize_decimal,
    datetime.datetime: _normalize_datetime,
    list: lambda value: [normalize_value(item) for item in value],
    tuple: lambda value: [normalize_value(item) for item in value],
    dict: lambda value: {key: normalize_value(value[key]) for key in sorted(value)},
    bytearray: bytes,
}
