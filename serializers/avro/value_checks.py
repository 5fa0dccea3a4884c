"""Checks of Python values before fastavro writes them as Avro.

fastavro's writer is written in C and trusts its input: outside of unions it writes 1.5 as the int 1, any object as a boolean,
and numbers of 41 bits as an int of 32. A schema compiles to one function that refuses what would be read back as another
value, and names the field. It never shows the value.
"""

import datetime
import decimal
import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

__all__ = ["MisfitValueError", "value_check"]

Check = Callable[[Any], None]

_NOTHING: Final = object()
_FLOAT_MAX: Final = 3.4028235677973366e38
_INT, _LONG = 1 << 31, 1 << 63
_EXACT_INT: Final = 1 << 53
_MANY: Final = 8


class MisfitValueError(ValueError):
    """A value does not fit its type.

    Args:
        reason: what does not fit, without the value.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def __str__(self) -> str:
        path = "".join(reversed(self.path)).lstrip(".")
        return f"field {path!r}: {self.reason}" if path else self.reason


def value_check(parsed: Any, named: Mapping[str, Any], *, tuples: bool = True, missing: bool = True) -> Check:
    """Return the function that raises `MisfitValueError` for a value that a schema cannot hold exactly.

    Args:
        parsed: a schema that fastavro has parsed.
        named: its named types.
        tuples: whether a tuple names the branch of a union.
        missing: whether missing fields are refused here; if not, fastavro refuses them.

    Example:
        >>> check = value_check({"type": "array", "items": "int"}, {})
        >>> check([1, 2])
        >>> check([1, 2.5])
        Traceback (most recent call last):
        streamrt.serializers.avro.value_checks.MisfitValueError: field '[1]': a float with a fraction is not an Avro int
    """
    return _Checks(named, tuples, missing).of(parsed)


def _make_misfit(value: Any, wanted: str) -> MisfitValueError:
    return MisfitValueError(f"a value of type {type(value).__name__} is not {wanted}")


def _check_boolean(value: Any) -> None:
    # numpy's booleans are none of Python's.
    if not isinstance(value, bool) and type(value).__name__ not in ("bool_", "bool"):
        raise _make_misfit(value, "a boolean")


def _check_null(value: Any) -> None:
    if value is not None:
        raise _make_misfit(value, "null")


def _integer_check(limit: int, name: str) -> Check:
    def check(value: Any) -> None:
        if value is None or isinstance(value, bool | str | bytes):
            raise _make_misfit(value, f"an Avro {name}")
        try:
            number = int(value)
        except (TypeError, ValueError, OverflowError, decimal.InvalidOperation):
            raise _make_misfit(value, f"an Avro {name}") from None
        if number != value:
            raise MisfitValueError(f"a {type(value).__name__} with a fraction is not an Avro {name}")
        if not -limit <= number < limit:
            raise MisfitValueError(f"the number does not fit into the {limit.bit_length()} bits of an Avro {name}")

    return check


def _check_double(value: Any) -> None:
    if value is None or isinstance(value, bool | str | bytes):
        raise _make_misfit(value, "a number")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise _make_misfit(value, "a number that a double can hold") from None
    if number != value and not math.isnan(number):
        raise MisfitValueError(f"a double cannot hold the {type(value).__name__} exactly: write a float")


def _check_float(value: Any) -> None:
    _check_double(value)
    if abs(number := float(value)) > _FLOAT_MAX and not math.isinf(number):
        raise MisfitValueError("the number is too large for an Avro float: use a double")


def _check_text(value: Any) -> None:
    if not isinstance(value, str):
        raise _make_misfit(value, "text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise MisfitValueError(f"character {error.start} of the text is a lone surrogate") from None


def _check_bytes(value: Any) -> None:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _make_misfit(value, "bytes")


def _check_uuid(value: Any) -> None:
    if isinstance(value, uuid.UUID):
        return
    _check_text(value)
    try:
        uuid.UUID(value)
    except ValueError:
        raise MisfitValueError("the text is not a UUID") from None


def _check_date(value: Any) -> None:
    if isinstance(value, datetime.datetime):
        raise MisfitValueError("a datetime is not a date: take its date()")
    if isinstance(value, datetime.date):
        return
    if isinstance(value, str):
        try:
            datetime.date.fromisoformat(value)
        except ValueError:
            raise MisfitValueError("the text is not a date") from None
        return
    _integer_check(_INT, "date")(value)


def _timestamp_check(name: str, per_unit: int, *, zone: bool) -> Check:
    number = _integer_check(_LONG, name)

    def check(value: Any) -> None:
        if not isinstance(value, datetime.datetime):
            number(value)
        elif value.utcoffset() is None and zone:
            raise MisfitValueError(
                f"a datetime without a time zone is not a {name}: its instant would depend on the machine"
            )
        elif value.tzinfo is not None and not zone:
            raise MisfitValueError(f"a datetime with a time zone is not a {name}: the zone would be lost")
        elif value.microsecond % per_unit:
            raise MisfitValueError(f"{name} has no microseconds: round the datetime to milliseconds")

    return check


def _time_check(limit: int, name: str, per_unit: int) -> Check:
    number = _integer_check(limit, name)

    def check(value: Any) -> None:
        if not isinstance(value, datetime.time):
            number(value)
        elif value.tzinfo is not None:
            raise MisfitValueError(f"a time with a time zone is not a {name}: the zone would be lost")
        elif value.microsecond % per_unit:
            raise MisfitValueError(f"{name} has no microseconds: round the time to milliseconds")

    return check


def _decimal_check(schema: Mapping[str, Any], otherwise: Check) -> Check:
    precision, scale = schema["precision"], schema.get("scale", 0)
    kind = f"decimal({precision}, {scale})"

    def check(value: Any) -> None:
        if not isinstance(value, decimal.Decimal):
            if isinstance(value, bytes | bytearray | memoryview):
                # The unscaled number, as it is stored.
                otherwise(value)
                return
            raise MisfitValueError(f"a value of type {type(value).__name__} is not a {kind}: convert it to a Decimal")
        if not value.is_finite():
            raise MisfitValueError(f"a {kind} is a finite number")
        _, digits, exponent = value.as_tuple()
        places = cast("int", exponent)
        if places < -scale:
            raise MisfitValueError(f"the Decimal has {-places} decimal places, and {kind} has {scale}: quantize() it")
        if value and len(digits) + places + scale > precision:
            raise MisfitValueError(f"the Decimal has too many digits for {kind}")

    return check


_PRIMITIVES: Final[dict[str, tuple[frozenset[type], Check]]] = {
    "null": (frozenset({type(None)}), _check_null),
    "boolean": (frozenset({bool}), _check_boolean),
    "int": (frozenset(), _integer_check(_INT, "int")),
    "long": (frozenset(), _integer_check(_LONG, "long")),
    "float": (frozenset(), _check_float),
    "double": (frozenset({float}), _check_double),
    "string": (frozenset(), _check_text),
    "bytes": (frozenset({bytes}), _check_bytes),
}
_LOGICAL: Final[dict[str, tuple[frozenset[type], Check]]] = {
    "int-date": (frozenset({datetime.date}), _check_date),
    "int-time-millis": (frozenset(), _time_check(_INT, "time-millis", 1_000)),
    "long-time-micros": (frozenset(), _time_check(_LONG, "time-micros", 1)),
    "long-timestamp-millis": (frozenset(), _timestamp_check("timestamp-millis", 1_000, zone=True)),
    "long-timestamp-micros": (frozenset(), _timestamp_check("timestamp-micros", 1, zone=True)),
    "long-local-timestamp-millis": (frozenset(), _timestamp_check("local-timestamp-millis", 1_000, zone=False)),
    "long-local-timestamp-micros": (frozenset(), _timestamp_check("local-timestamp-micros", 1, zone=False)),
    "string-uuid": (frozenset({uuid.UUID}), _check_uuid),
}


class _Checks:
    """Compiles schemas: each has types whose values always fit, and a function for the others."""

    def __init__(self, named: Mapping[str, Any], tuples: bool, missing: bool) -> None:
        self._named = named
        self._missing = missing
        self._tuples = tuples
        self._made: dict[str, Check] = {}

    def of(self, schema: Any) -> Check:
        fine, check = self._of(schema)

        def run(value: Any) -> None:
            if type(value) not in fine:
                check(value)

        return run if fine else check

    def _of(self, schema: Any) -> tuple[frozenset[type], Check]:
        if isinstance(schema, list):
            return self._union_check(schema)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            schema = self._named[schema]
        kind, logical = schema["type"], schema.get("logicalType")
        if not isinstance(kind, str):
            return self._of(kind)
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return frozenset(), _decimal_check(schema, _check_bytes if kind == "bytes" else _fixed_check(schema))
        if f"{kind}-{logical}" in _LOGICAL:
            return _LOGICAL[f"{kind}-{logical}"]
        if kind in ("record", "error"):
            return frozenset(), self._record_check(schema)
        if kind == "array":
            return frozenset(), _array_check(*self._of(schema["items"]))
        if kind == "map":
            return frozenset(), _map_check(*self._of(schema["values"]))
        if kind == "enum":
            return frozenset(), _enum_check(schema)
        if kind == "fixed":
            return frozenset(), _fixed_check(schema)
        return self._of(kind)

    def _record_check(self, schema: Any) -> Check:
        name = schema["name"]
        if name in self._made:
            return self._made[name]
        fields: list[tuple[str, bool, frozenset[type], Check]] = []
        nothing = _NOTHING

        def check(value: Any) -> None:
            try:
                get = value.get
            except AttributeError:
                raise MisfitValueError(f"a value of type {type(value).__name__} is not a record {name}") from None
            for field, optional, fine, fits in fields:
                item = get(field, nothing)
                if item is nothing:
                    if not optional:
                        raise MisfitValueError(f"no value and no default for {field}")
                elif type(item) not in fine:
                    try:
                        fits(item)
                    except MisfitValueError as error:
                        error.path.append(f".{field}")
                        raise

        # Before the fields: the type of one may be this record.
        self._made[name] = check
        # fastavro writes null for a missing field that may be null.
        fields += [
            (one["name"], not self._missing or "default" in one or "null" in one["type"], *self._of(one["type"]))
            for one in schema["fields"]
        ]
        return check

    def _union_check(self, schema: list[Any]) -> tuple[frozenset[type], Check]:
        branches = [(_branch_name(branch), _kind_of(branch, self._named), *self._of(branch)) for branch in schema]
        fine: frozenset[type] = frozenset().union(*(types for _, _, types, _ in branches))
        by_name = {name: fits for name, _, _, fits in branches}
        kinds = [kind for _, kind, _, _ in branches]
        # fastavro takes the first of these for each number.
        floats = next((index for index, kind in enumerate(kinds) if kind in ("float", "double")), len(kinds))
        integers = next((index for index, kind in enumerate(kinds) if kind in ("int", "long")), len(kinds))
        float_first = floats < integers < len(kinds)
        shown = " or ".join(name for name, *_ in branches[:_MANY]) + (" or ..." if len(branches) > _MANY else "")

        def check(value: Any) -> None:
            if self._tuples and isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
                named = by_name.get(value[0])
                if named is not None:
                    if type(value[1]) not in fine:
                        named(value[1])
                    return
            if float_first and type(value) is int and abs(value) > _EXACT_INT:
                raise MisfitValueError(f"the int is not exact as a double, the first number of {shown}: put long first")
            misfit: MisfitValueError | None = None
            for _, kind, types, fits in branches:
                if type(value) in types:
                    return
                try:
                    fits(value)
                except MisfitValueError as error:
                    # Of a branch that looks like it, the reason says more than that of the others.
                    if error.path or _resembles_kind(value, kind):
                        misfit = error
                else:
                    return
            raise misfit or _make_misfit(value, shown)

        return fine, check


def _resembles_kind(value: Any, kind: str) -> bool:
    if isinstance(value, datetime.date | datetime.time):
        return kind in ("date", "time", "timestamp")
    if isinstance(value, decimal.Decimal):
        return kind == "decimal"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return kind in ("int", "long", "float", "double")
    return isinstance(value, str) and kind in ("string", "uuid", "enum")


def _kind_of(schema: Any, named: Mapping[str, Any]) -> str:
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    if isinstance(schema, list):
        return "union"
    logical = schema.get("logicalType")
    if logical:
        return next((kind for kind in ("timestamp", "time", "date", "decimal", "uuid") if kind in logical), logical)
    return str(schema["type"])


def _branch_name(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    name = schema.get("name") or schema["type"]
    return name if isinstance(name, str) else _branch_name(name)


def _array_check(fine: frozenset[type], fits: Check) -> Check:
    def check(value: Any) -> None:
        if isinstance(value, str | bytes | bytearray | Mapping) or not hasattr(value, "__len__"):
            raise _make_misfit(value, "a list")
        for index, item in enumerate(value):
            if type(item) not in fine:
                try:
                    fits(item)
                except MisfitValueError as error:
                    error.path.append(f"[{index}]")
                    raise

    return check


def _map_check(fine: frozenset[type], fits: Check) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, Mapping):
            raise _make_misfit(value, "a dict")
        for key, item in value.items():
            _check_text(key)
            if type(item) not in fine:
                try:
                    fits(item)
                except MisfitValueError as error:
                    error.path.append(f"[{key!r}]")
                    raise

    return check


def _enum_check(schema: Mapping[str, Any]) -> Check:
    symbols = frozenset(schema["symbols"])

    def check(value: Any) -> None:
        if not isinstance(value, str):
            raise _make_misfit(value, f"a symbol of {schema['name']}")
        if value not in symbols:
            raise MisfitValueError(f"the text is not a symbol of {schema['name']}")

    return check


def _fixed_check(schema: Mapping[str, Any]) -> Check:
    size = schema["size"]

    def check(value: Any) -> None:
        _check_bytes(value)
        if len(value) != size:
            raise MisfitValueError(f"{schema['name']} has {size} bytes, the value has {len(value)}")

    return check
