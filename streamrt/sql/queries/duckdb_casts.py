"""Casts of Spark's ANSI mode, in DuckDB's SQL: what does not fit raises, or is NULL in `try_cast`."""

from collections.abc import Callable

import pyarrow as pa

from streamrt.errors import SQLNotSupportedError
from streamrt.sql.expressions.coercion import (
    DAYS,
    INTERVAL,
    STRING,
    describe_type,
    is_interval,
    is_numeric,
    is_timestamp,
)
from streamrt.sql.queries.duckdb_types import TypedText, duckdb_type, quote

__all__ = ["cast_text", "convert_implicitly", "may_raise", "raise_unless", "with_name"]

_INTEGER = r"[+-]?[0-9]+"
_DECIMAL = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
_FLOAT = rf"({_DECIMAL}|(?i:nan|[+-]?(inf|infinity)))"
_DATE = r"[0-9]{4}(-[0-9]{1,2}(-[0-9]{1,2})?)?"
_TIME = r"[0-9]{1,2}:[0-9]{1,2}(:[0-9]{1,2}([.][0-9]{0,9})?)?"
_TRUE = "'t', 'true', 'y', 'yes', '1'"
_FALSE = "'f', 'false', 'n', 'no', '0'"
_RAISE = "error("
_BLANKS = "' ' || chr(9) || chr(10) || chr(11) || chr(12) || chr(13)"


def with_name(value: str, make: Callable[[str], str]) -> str:
    """Return an expression that uses the value of another one several times, and computes it once.

    Equal values get equal names, so that DuckDB finds equal expressions in GROUP BY and SELECT.

    Args:
        value: the value.
        make: returns the expression for the name of the value.

    Example:
        >>> with_name("a + b", lambda name: f"{name} * {name}")
        'list_transform([a + b], lambda __v0: __v0 * __v0)[1]'
    """
    name = _find_free_name("__v", value + make(""))
    return f"list_transform([{value}], lambda {name}: {make(name)})[1]"


def raise_unless(condition: str, value: str, message: str, *, safe: bool = False) -> str:
    """Return an expression that raises, or is NULL, unless a condition holds or is NULL."""
    otherwise = "NULL" if safe else f"{_RAISE}'{message}')"
    return f"CASE WHEN NOT ({condition}) THEN {otherwise} ELSE {value} END"


def may_raise(sql: str) -> bool:
    """Return whether a text may have an expression of `raise_unless`: DuckDB computes such ones again for each row."""
    return _RAISE in sql


def convert_implicitly(value: TypedText, target: pa.DataType) -> TypedText:
    """Return a value as the type that an operation or a branch has; the type comes from `common_type`."""
    if value.dtype == target:
        return value
    if value.dtype == pa.null():
        return TypedText(f"CAST(NULL AS {duckdb_type(target)})", target)
    return cast_text(value, target)


def cast_text(value: TypedText, target: pa.DataType, *, safe: bool = False) -> TypedText:
    """Return a cast.

    Args:
        value: what is cast.
        target: the type to which.
        safe: whether what does not fit is NULL, as in `try_cast`.

    Raises:
        SQLNotSupportedError: if DuckDB has no cast that gives what Spark's does.
    """
    source = value.dtype
    if source == target:
        return value
    if source == pa.null():
        return TypedText(f"CAST(NULL AS {duckdb_type(target)})", target)
    text = _find_cast(value.sql, source, target, safe)
    if text is None:
        raise SQLNotSupportedError(
            f"a query casts no {describe_type(source)} to {describe_type(target)}{_advise(source, target)}"
        )
    return TypedText(text, target)


def _advise(source: pa.DataType, target: pa.DataType) -> str:
    if pa.types.is_floating(source) and target == STRING:
        return ": DuckDB writes such numbers in another way than Spark; cast to a DECIMAL first"
    return ""


def _find_cast(sql: str, source: pa.DataType, target: pa.DataType, safe: bool) -> str | None:
    if source == STRING:
        return _cast_text(sql, target, safe)
    if target == STRING:
        return _write_text(sql, source)
    if pa.types.is_integer(target):
        return _cast_to_integer(sql, source, target, safe)
    if is_numeric(target):
        return _cast_to_number(sql, source, target, safe)
    if target == pa.bool_():
        return f"({sql} <> 0)" if is_numeric(source) else None
    if target == pa.date32():
        return f"CAST({sql} AS DATE)" if is_timestamp(source) else None
    if is_timestamp(target):
        return f"CAST({sql} AS TIMESTAMP)" if source == pa.date32() or is_timestamp(source) else None
    if is_interval(source):
        return sql if target == INTERVAL and source == DAYS else None
    return _cast_nested(sql, source, target, safe)


def _do_cast(sql: str, target: pa.DataType, safe: bool) -> str:
    return f"{'TRY_CAST' if safe else 'CAST'}({sql} AS {duckdb_type(target)})"


def _cast_text(sql: str, target: pa.DataType, safe: bool) -> str | None:
    bare = f"trim({sql}, {_BLANKS})"

    message = f"a text cannot be cast to {describe_type(target)}: use try_cast()"

    def checked(pattern: str, make: Callable[[str], str]) -> str:
        def make_checked(name: str) -> str:
            return raise_unless(f"regexp_full_match({name}, '{pattern}')", make(name), message, safe=safe)

        return with_name(bare, make_checked)

    if target == pa.bool_():
        return with_name(
            f"lower({bare})",
            lambda name: raise_unless(f"{name} IN ({_TRUE}, {_FALSE})", f"({name} IN ({_TRUE}))", message, safe=safe),
        )
    if pa.types.is_integer(target):
        return checked(_INTEGER, lambda name: _do_cast(name, target, safe))
    if pa.types.is_decimal(target):
        return checked(_DECIMAL, lambda name: _do_cast(name, target, safe))
    if pa.types.is_floating(target):
        return checked(_FLOAT, lambda name: _do_cast(name, target, safe))
    if target == pa.date32():
        return checked(f"{_DATE}([ T].*)?", lambda name: _do_cast(_complete_date(name), target, safe))
    if is_timestamp(target):
        return checked(f"{_DATE}([ T]{_TIME})?", lambda name: _do_cast(_complete_time(name), target, safe))
    if target == pa.binary():
        return f"encode({sql})"
    return None


def _complete_date(name: str) -> str:
    """Return a date that may lack its month, its day, or both, and have a time behind it, as DuckDB reads it."""
    month = f"coalesce(nullif(regexp_extract({name}, '^[0-9]{{4}}-([0-9]+)', 1), ''), '1')"
    day = f"coalesce(nullif(regexp_extract({name}, '^[0-9]{{4}}-[0-9]+-([0-9]+)', 1), ''), '1')"
    return f"left({name}, 4) || '-' || {month} || '-' || {day}"


def _complete_time(name: str) -> str:
    """Return a time that may lack all but its year as DuckDB reads it."""
    time = f"coalesce(nullif(regexp_extract({name}, '[ T](.*)$', 1), ''), '00:00:00')"
    return f"{_complete_date(name)} || ' ' || {time}"


def _write_text(sql: str, source: pa.DataType) -> str | None:
    if source == pa.bool_() or pa.types.is_integer(source) or pa.types.is_decimal(source) or source == pa.date32():
        return f"CAST({sql} AS VARCHAR)"
    if is_timestamp(source):
        return f"CAST({sql} AS VARCHAR)"
    if source == pa.binary():
        return f"decode({sql})"
    return None


def _cast_to_integer(sql: str, source: pa.DataType, target: pa.DataType, safe: bool) -> str | None:
    if source == pa.bool_() or pa.types.is_integer(source):
        return _do_cast(sql, target, safe)
    if is_numeric(source):
        return _do_cast(f"trunc({sql})", target, safe)
    if is_timestamp(source) and target == pa.int64():
        return f"CAST(floor(epoch_us({sql}) / 1000000) AS BIGINT)"
    return None


def _cast_to_number(sql: str, source: pa.DataType, target: pa.DataType, safe: bool) -> str | None:
    if pa.types.is_floating(target):
        return _do_cast(sql, target, safe) if source == pa.bool_() or is_numeric(source) else None
    if pa.types.is_floating(source):
        # By the shortest digits, as Spark does: others are those of the binary fraction.
        made = _do_cast(f"CAST({sql} AS VARCHAR)", target, safe)
        return raise_unless(f"isfinite({sql})", made, f"NaN and infinity are not {describe_type(target)}", safe=safe)
    if source == pa.bool_():
        return _do_cast(f"CAST({sql} AS INTEGER)", target, safe)
    return _do_cast(sql, target, safe) if is_numeric(source) else None


def _cast_nested(sql: str, source: pa.DataType, target: pa.DataType, safe: bool) -> str | None:
    if pa.types.is_list(source) and pa.types.is_list(target):
        return _cast_list(sql, source, target, safe)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return _cast_map(sql, source, target, safe)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _cast_struct(sql, source, target, safe)
    return None


def _cast_list(sql: str, source: pa.DataType, target: pa.DataType, safe: bool) -> str | None:
    probe = _cast_part("", source.value_type, target.value_type, safe)
    if probe is None:
        return None
    name = _find_free_name("__e", sql + probe)
    return f"list_transform({sql}, lambda {name}: {_cast_part(name, source.value_type, target.value_type, safe)})"


def _cast_map(sql: str, source: pa.DataType, target: pa.DataType, safe: bool) -> str | None:
    entries = [pa.struct([("key", each.key_type), ("value", each.item_type)]) for each in (source, target)]
    made = _cast_list(f"map_entries({sql})", pa.list_(entries[0]), pa.list_(entries[1]), safe)
    return None if made is None else f"map_from_entries({made})"


def _cast_struct(sql: str, source: pa.DataType, target: pa.DataType, safe: bool) -> str | None:
    if source.num_fields != target.num_fields:
        return None

    def make(name: str) -> str:
        parts = [
            (new.name, _cast_part(f"{name}.{quote(old.name)}", old.type, new.type, safe))
            for old, new in zip(source, target, strict=True)
        ]
        if any(part is None for _, part in parts):
            return ""
        fields = ", ".join(f"{quote(field)}: {part}" for field, part in parts)
        return f"CASE WHEN {name} IS NULL THEN NULL ELSE {{{fields}}} END"

    return with_name(sql, make) if make("") else None


def _cast_part(sql: str, source: pa.DataType, target: pa.DataType, safe: bool) -> str | None:
    if source == target:
        return sql
    if source == pa.null():
        return _do_cast("NULL", target, safe)
    return _find_cast(sql, source, target, safe)


def _find_free_name(prefix: str, text: str) -> str:
    """Return a name that is not in a text. DuckDB takes `v0.s` as a field of a column v0, even where a parameter is v0."""
    number = 0
    while f"{prefix}{number}" in text:
        number += 1
    return f"{prefix}{number}"
