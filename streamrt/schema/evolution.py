"""Whether a schema can take the place of another one, while rows of both exist."""

import pyarrow as pa

from streamrt.schema.columns import NO_DEFAULT, Column
from streamrt.schema.schema import Schema
from streamrt.schema.types import type_word

__all__ = ["evolution_faults"]


def evolution_faults(newer: Schema, older: Schema) -> list[str]:
    """Return why rows of a schema cannot be read with a newer one; nothing if they can.

    Columns may be added if they are nullable or have a default, and dropped if they are nullable and not in the primary
    key. Types may become wider: integers with more bits, `FLOAT` to `DOUBLE`, decimals with more digits before and behind the
    point, longer strings, `DATE` to `TIMESTAMP`. A column of another name is another column.

    Args:
        newer: the schema to read with.
        older: the schema that rows were written with.

    Example:
        >>> evolution_faults(Schema("id BIGINT, name STRING NOT NULL"), Schema("id INT"))
        ["column 'name' is new, and rows without it have no value for it: make it nullable, or give it a default"]
    """
    faults: list[str] = []
    if newer.primary_key != older.primary_key:
        faults.append(f"the primary key changes from {_list_columns(older)} to {_list_columns(newer)}")
    before = {each.name: each for each in older.fields}
    after = {each.name: each for each in newer.fields}
    for column in newer.fields:
        if column.name in before:
            faults += _column_changes(before[column.name], column, column.name in older.primary_key)
        elif not column.nullable and column.default is NO_DEFAULT:
            faults.append(
                f"column {column.name!r} is new, and rows without it have no value for it: make it nullable, or give it a "
                "default"
            )
    for column in older.fields:
        if column.name not in after and not column.nullable:
            faults.append(f"column {column.name!r} is dropped, and readers of the older schema need a value for it")
    return faults


def _column_changes(older: Column, newer: Column, in_key: bool) -> list[str]:
    faults = []
    if older.dtype != newer.dtype and in_key:
        faults.append(
            f"column {newer.name!r} of the primary key changes its type: equal keys would have different bytes"
        )
    elif not _is_wider(newer.dtype, older.dtype):
        faults.append(
            f"column {newer.name!r} changes from {type_word(older.dtype)} to {type_word(newer.dtype)}, which cannot hold all "
            "of its values"
        )
    if newer.length is not None and (older.length is None or older.length > newer.length):
        faults.append(f"column {newer.name!r} has {newer.length} characters at most, and texts may be longer")
    if older.nullable and not newer.nullable:
        faults.append(f"column {newer.name!r} must not be null, and in some rows it may be")
    return faults


def _is_wider(newer: pa.DataType, older: pa.DataType) -> bool:
    """Whether each value of a type is one of the other, and means the same."""
    kinds = pa.types
    if newer == older:
        wider = True
    elif kinds.is_integer(older) and kinds.is_integer(newer):
        wider = newer.bit_width >= older.bit_width
    elif kinds.is_integer(older):
        # All integers of 32 bits are doubles, those of 64 bits are not.
        wider = newer == pa.float64() and older.bit_width <= 32
    elif kinds.is_floating(older):
        wider = kinds.is_floating(newer) and newer.bit_width >= older.bit_width
    elif kinds.is_decimal128(older) and kinds.is_decimal128(newer):
        wider = newer.scale >= older.scale and newer.precision - newer.scale >= older.precision - older.scale
    elif kinds.is_fixed_size_binary(older):
        wider = newer == pa.binary()
    elif kinds.is_list(older) and kinds.is_list(newer):
        wider = _is_field_wider(newer.value_field, older.value_field)
    elif kinds.is_map(older) and kinds.is_map(newer):
        wider = newer.key_type == older.key_type and _is_field_wider(newer.item_field, older.item_field)
    elif kinds.is_struct(older) and kinds.is_struct(newer):
        wider = _is_struct_wider(newer, older)
    else:
        wider = older == pa.date32() and newer == pa.timestamp("us")
    return bool(wider)


def _is_struct_wider(newer: pa.DataType, older: pa.DataType) -> bool:
    before = {field.name: field for field in older}
    after = {field.name: field for field in newer}
    added = all(field.nullable for field in newer if field.name not in before)
    dropped = all(field.nullable for field in older if field.name not in after)
    return added and dropped and all(_is_field_wider(after[name], before[name]) for name in before.keys() & after)


def _is_field_wider(newer: pa.Field, older: pa.Field) -> bool:
    return (newer.nullable or not older.nullable) and _is_wider(newer.type, older.type)


def _list_columns(schema: Schema) -> str:
    return ", ".join(schema.primary_key) or "none"
