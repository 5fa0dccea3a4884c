"""Types of Arrow for values of Python. Arrow's own inference cuts times off dates, and makes floats of integers."""

import datetime
import decimal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

__all__ = ["column_type", "common_type", "joined_tables", "plain_types", "type_of"]

_EXACT = 2**53
"""Floats hold all integers up to here."""


def plain_types() -> dict[type, "pyarrow.DataType"]:
    """Return the types of values whose class has one type."""
    import pyarrow

    return {
        bool: pyarrow.bool_(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        str: pyarrow.string(),
        bytes: pyarrow.binary(),
        datetime.date: pyarrow.date32(),
        datetime.time: pyarrow.time64("us"),
    }


def type_of(value: Any) -> "pyarrow.DataType":
    """Return the type of one value. An integer that a float holds exactly is an int32, whatever its size.

    Args:
        value: the value.

    Raises:
        TypeError: if it has none.
        OverflowError: if it is a time in a year that Python does not have in UTC.

    Example:
        >>> type_of([1, 2.5])
        ListType(list<item: double>)
    """
    import pyarrow

    if type(value) is int:
        return pyarrow.int32() if -_EXACT <= value <= _EXACT else pyarrow.int64()
    plain = plain_types().get(type(value))
    if plain is not None:
        return plain
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            return pyarrow.timestamp("us")
        value.astimezone(datetime.timezone.utc)
        return pyarrow.timestamp("us", "UTC")
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise TypeError
        return pyarrow.struct([pyarrow.field(name, type_of(inner)) for name, inner in value.items()])
    if isinstance(value, list | tuple):
        common = pyarrow.null()
        for element in value:
            common = common_type(common, type_of(element))
        return pyarrow.list_(common)
    if isinstance(value, decimal.Decimal) and not value.is_finite():
        raise TypeError
    return pyarrow.array([value]).type


def common_type(one: "pyarrow.DataType", other: "pyarrow.DataType") -> "pyarrow.DataType":
    """Return the type that holds values of two types without loss.

    Args:
        one: a result of `type_of`.
        other: another one.

    Raises:
        TypeError: if there is none.
    """
    import pyarrow
    from pyarrow import types

    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_struct(one) and types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = common_type(fields.get(field.name, pyarrow.null()), field.type)
        return pyarrow.struct(list(fields.items()))
    if types.is_list(one) and types.is_list(other):
        return pyarrow.list_(common_type(one.value_type, other.value_type))
    if types.is_decimal(one) and types.is_decimal(other):
        return pyarrow.decimal128(38, max(one.scale, other.scale))
    pair = {one, other}
    if pair == {pyarrow.int32(), pyarrow.float64()}:
        return pyarrow.float64()
    if pair == {pyarrow.int32(), pyarrow.int64()}:
        return pyarrow.int64()
    raise TypeError


def column_type(values: Sequence[Any]) -> "tuple[pyarrow.DataType, int | None]":
    """Return the type of a column, and the number of the first value that does not fit those before it, or None.

    Args:
        values: the values. One without a type is passed over.

    Example:
        >>> column_type([1, None, 2.5, "text"])
        (DataType(double), 3)
    """
    import pyarrow

    classes = set(map(type, values))
    classes.discard(type(None))
    if len(classes) == 1 and (plain := plain_types().get(next(iter(classes)))) is not None:
        return plain, None
    common = pyarrow.null()
    for number, value in enumerate(values):
        if value is None:
            continue
        try:
            found = type_of(value)
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
            continue
        try:
            common = common_type(common, found)
        except TypeError:
            return _stored_type(common), number
    return _stored_type(common), None


def joined_tables(one: Any, other: Any) -> Any:
    """Return the rows of two tables as one table; None if a column has two types that have none in common.

    Args:
        one: a table of Arrow.
        other: another one.
    """
    import pyarrow

    tables = [one, other]
    for name in set(one.column_names) & set(other.column_names):
        kinds = [table.schema.field(name).type for table in tables]
        if {pyarrow.int64(), pyarrow.float64()} == set(kinds):
            number = kinds.index(pyarrow.int64())
            table = tables[number]
            index = table.schema.get_field_index(name)
            try:
                tables[number] = table.set_column(index, name, table.column(name).cast(pyarrow.float64()))
            except pyarrow.ArrowInvalid:
                return None
    try:
        return pyarrow.concat_tables(tables, promote_options="default")
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
        return None


def _stored_type(kind: "pyarrow.DataType") -> "pyarrow.DataType":
    """Return the type of a column for a common type: integers have 64 bits."""
    import pyarrow
    from pyarrow import types

    if types.is_struct(kind):
        return pyarrow.struct([(field.name, _stored_type(field.type)) for field in kind])
    if types.is_list(kind):
        return pyarrow.list_(_stored_type(kind.value_type))
    return pyarrow.int64() if types.is_int32(kind) else kind
