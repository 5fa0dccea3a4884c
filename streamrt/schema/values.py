"""Values that a column may hold, by its type.

A check takes a value and returns it as the column keeps it, or says which rule the value breaks. Rules never quote values:
they end up in errors and logs.
"""

import base64
import binascii
import datetime
import decimal
import math
import numbers
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import orjson
import pyarrow as pa

from streamrt.schema.iso8601 import parse_date, parse_datetime, parse_time

__all__ = ["Check", "ValueMismatchError", "check_for", "text_of"]

Check = Callable[[Any], Any]
"""Returns a value as its column keeps it.

Raises:
    ValueMismatchError: if it does not fit.
"""

_UTC = datetime.timezone.utc
# Python's own `int`, `float` and `Decimal` read digits of all scripts, `_` between them, and blanks around them.
_DECIMAL_TEXT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_JSON_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_JSON_NUMBER = re.compile(_JSON_INTEGER.pattern + r"(\.[0-9]+)?([eE][+-]?[0-9]+)?")


_NAMED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class ValueMismatchError(Exception):
    """A value does not fit its column.

    Args:
        rule: what the value should be.
        path: where in the column it is, such as `.street` or `[]`.
    """

    def __init__(self, rule: str, path: str = "") -> None:
        super().__init__(rule, path)
        self.rule = rule
        self.path = path


def check_for(dtype: pa.DataType, from_json: bool = False) -> Check:
    """Return the check for values of a type; None is not a value.

    Args:
        dtype: type of a column.
        from_json: whether values come from JSON, where bytes are base64, all map keys strings, NaN and infinities
            strings, and strings may be any JSON.
    """
    if from_json and dtype == pa.string():
        return _json_text
    if pa.types.is_integer(dtype):
        return _integer_check(dtype.bit_width)
    if pa.types.is_floating(dtype):
        check = _check_float32 if dtype.bit_width == 32 else _check_float
        return (lambda value: check(_read_name(value))) if from_json else check
    if pa.types.is_decimal128(dtype):
        return _decimal_check(dtype.precision, dtype.scale)
    if pa.types.is_fixed_size_binary(dtype):
        return _bytes_of(dtype.byte_width, _read_base64 if from_json else _check_bytes)
    if from_json and dtype == pa.binary():
        return _read_base64
    if pa.types.is_timestamp(dtype):
        return _check_timestamp if dtype.tz is None else _read_instant
    if pa.types.is_list(dtype):
        return _list_check(_check_nullable(dtype.value_field, from_json))
    if pa.types.is_map(dtype):
        key = check_for(dtype.key_type, from_json)
        return _map_check(
            _text_keys(dtype.key_type, key) if from_json else key, _check_nullable(dtype.item_field, from_json)
        )
    if pa.types.is_struct(dtype):
        return _struct_check(
            {field.name: _check_nullable(field, from_json) for field in dtype}, ignore_others=from_json
        )
    return _CHECKS[dtype]


def text_of(longest: int | None, from_json: bool = False) -> Check:
    """Return the check for strings with a number of characters at most."""
    as_text = _json_text if from_json else _check_text
    if longest is None:
        return as_text

    def check(value: Any) -> str:
        text = as_text(value)
        if len(text) > longest:
            raise ValueMismatchError(f"a text with {longest} characters at most")
        return text

    return check


def _check_nullable(field: pa.Field, from_json: bool) -> Check:
    inner = check_for(field.type, from_json)

    def check(value: Any) -> Any:
        if value is not None:
            return inner(value)
        if field.nullable:
            return None
        raise ValueMismatchError("not null")

    return check


def _check_boolean(value: Any) -> bool:
    # NumPy's own are not a subclass.
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise ValueMismatchError("a bool")


def _integer_check(bits: int) -> Check:
    highest = (1 << (bits - 1)) - 1
    lowest = ~highest

    def check(value: Any) -> int:
        try:
            number = operator.index(value)
        except TypeError:
            number = None
        if number is None or isinstance(value, bool):
            raise ValueMismatchError("an integer")
        if not lowest <= number <= highest:
            raise ValueMismatchError(f"an integer of {bits} bits")
        return number

    return check


def _check_float(value: Any) -> float:
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, decimal.Decimal)):
        raise ValueMismatchError("a number")
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        raise ValueMismatchError("a number that a float can hold") from None


def _read_name(value: Any) -> Any:
    """Return the number that JSON has as a string, or another value as it is."""
    return _NAMED.get(value, value) if isinstance(value, str) else value


def _check_float32(value: Any) -> float:
    number = _check_float(value)
    kept: float = pa.scalar(number, pa.float32()).as_py()
    if math.isinf(kept) and not math.isinf(number):
        raise ValueMismatchError("a number that a float of 32 bits can hold")
    return kept


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueMismatchError("a text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueMismatchError("a text that UTF-8 can hold") from None
    return value


def _json_text(value: Any) -> str:
    # So that a schema whose columns are all strings reads every object.
    if isinstance(value, str):
        return _check_text(value)
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        # orjson reads more levels than it writes.
        raise ValueMismatchError("a text, or JSON with fewer levels") from None


def _check_bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise ValueMismatchError("bytes")


def _read_base64(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueMismatchError("bytes as base64 text")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueMismatchError("bytes as base64 text") from None


def _bytes_of(length: int, read: Check) -> Check:
    def check(value: Any) -> bytes:
        data: bytes = read(value)
        if len(data) != length:
            raise ValueMismatchError(f"{length} bytes")
        return data

    return check


def _read_date(value: Any) -> datetime.date:
    if isinstance(value, str):
        value = _parse_text(parse_date, value, "a date, or one as ISO 8601 text")
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    raise ValueMismatchError("a date without a time")


def _read_time(value: Any) -> datetime.time:
    if isinstance(value, str):
        value = _parse_text(parse_time, value, "a time of day, or one as ISO 8601 text in milliseconds")
    if not isinstance(value, datetime.time) or value.tzinfo is not None:
        raise ValueMismatchError("a time of day without a time zone")
    if value.microsecond % 1000:
        raise ValueMismatchError("a time of day in milliseconds")
    return value


def _check_timestamp(value: Any) -> datetime.datetime:
    if type(value) is datetime.datetime and value.tzinfo is None:
        return value
    moment = _read_datetime(value)
    if moment.tzinfo is not None:
        raise ValueMismatchError("a time without a time zone; TIMESTAMP_LTZ keeps times with one")
    return moment


def _read_instant(value: Any) -> datetime.datetime:
    if type(value) is datetime.datetime and value.tzinfo is _UTC:
        return value
    moment = _read_datetime(value)
    if moment.tzinfo is None:
        return moment.replace(tzinfo=_UTC)
    try:
        return moment.astimezone(_UTC)
    except OverflowError:
        raise ValueMismatchError("a time between the years 1 and 9999 in UTC") from None


def _read_datetime(value: Any) -> datetime.datetime:
    if isinstance(value, str):
        value = _parse_text(parse_datetime, value, "a time, or one as ISO 8601 text with microseconds at most")
    if not isinstance(value, datetime.datetime) or value != value:
        raise ValueMismatchError("a time with a date")
    # Those of pandas also have nanoseconds.
    if getattr(value, "nanosecond", 0):
        raise ValueMismatchError("a time in microseconds")
    to_datetime = getattr(value, "to_pydatetime", None)
    moment: datetime.datetime = value if to_datetime is None else to_datetime()
    return moment


def _parse_text(parse: Callable[[str], Any], text: str, rule: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        raise ValueMismatchError(rule) from None


def _decimal_check(precision: int, scale: int) -> Check:
    context = decimal.Context(prec=precision, traps=[decimal.InvalidOperation])
    step = decimal.Decimal(1).scaleb(-scale)

    def check(value: Any) -> decimal.Decimal:
        if not isinstance(value, decimal.Decimal):
            value = _check_number(value)
        try:
            number = decimal.Decimal(value)
        except (decimal.InvalidOperation, ValueError):
            raise ValueMismatchError("a Decimal, an integer, or a text with a number") from None
        if not number.is_finite():
            raise ValueMismatchError("a finite number")
        try:
            kept = number.quantize(step, context=context)
        except decimal.InvalidOperation:
            raise ValueMismatchError(f"a number with {precision - scale} digits before the point at most") from None
        if kept != number:
            raise ValueMismatchError(f"a number with {scale} digits behind the point at most")
        # Arrow and Avro have no negative zero, and equal keys must have equal bytes.
        return kept if kept else kept.copy_abs()

    return check


def _check_number(value: Any) -> int | str:
    """Return an integer, or a text with a number, from which a decimal can be made."""
    if isinstance(value, str):
        if _DECIMAL_TEXT.fullmatch(value):
            return value
    elif not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass  # it is not an integer
    exact = "; floats are not exact: write Decimal(str(value))" if isinstance(value, float) else ""
    raise ValueMismatchError(f"a Decimal, an integer, or a text with a number{exact}")


def _list_check(check_item: Check) -> Check:
    def check(value: Any) -> list[Any]:
        # Arrays of NumPy are not sequences.
        if not isinstance(value, (list, tuple)) and getattr(value, "ndim", 0) != 1:
            raise ValueMismatchError("a list")
        try:
            return [check_item(item) for item in value]
        except ValueMismatchError as misfit:
            raise ValueMismatchError(misfit.rule, "[]" + misfit.path) from None

    return check


def _map_check(check_key: Check, check_item: Check) -> Check:
    def check(value: Any) -> dict[Any, Any]:
        pairs: Collection[tuple[Any, Any]]
        if isinstance(value, Mapping):
            pairs = value.items()
        elif isinstance(value, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            # As Arrow hands maps out.
            pairs = value
        else:
            raise ValueMismatchError("a mapping")
        made = {_check_within(".keys()", check_key, key): _check_within("[]", check_item, item) for key, item in pairs}
        if len(made) != len(pairs):
            raise ValueMismatchError("a mapping with each key once")
        return made

    return check


def _text_keys(dtype: pa.DataType, check: Check) -> Check:
    """Read keys that JSON has as strings."""
    if dtype == pa.bool_():
        texts: Mapping[str, Any] = {"true": True, "false": False}
        return lambda key: check(texts.get(key))
    rule = "a number, as JSON writes it"
    if pa.types.is_integer(dtype):
        return lambda key: check(_parse_text(int, key if _JSON_INTEGER.fullmatch(key) else "", rule))
    if pa.types.is_floating(dtype):
        return lambda key: check(_parse_text(_read_float, key, rule))
    return check


def _read_float(text: str) -> float:
    if text in _NAMED:
        return _NAMED[text]
    number = float(text if _JSON_NUMBER.fullmatch(text) else "")
    if math.isinf(number):
        raise ValueError("a float cannot hold it")
    return number


def _struct_check(fields: Mapping[str, Check], ignore_others: bool) -> Check:
    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueMismatchError(f"a mapping with {', '.join(fields)}")
        if not ignore_others and not fields.keys() >= value.keys():
            raise ValueMismatchError(f"a mapping with no other keys than {', '.join(fields)}")
        checked = {}
        name = ""
        try:
            for name, each in fields.items():
                checked[name] = each(value.get(name))
        except ValueMismatchError as misfit:
            raise ValueMismatchError(misfit.rule, f".{name}{misfit.path}") from None
        return checked

    return check


def _check_within(step: str, check: Check, value: Any) -> Any:
    try:
        return check(value)
    except ValueMismatchError as misfit:
        raise ValueMismatchError(misfit.rule, step + misfit.path) from None


_CHECKS: dict[pa.DataType, Check] = {
    pa.bool_(): _check_boolean,
    pa.string(): _check_text,
    pa.binary(): _check_bytes,
    pa.date32(): _read_date,
    pa.time32("ms"): _read_time,
}
