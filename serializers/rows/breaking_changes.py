"""Which changes of a schema a format cannot follow, although rows of both schemas mean the same."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from streamrt.schema import Schema
from streamrt.schema.avro import WORD

__all__ = ["format_faults"]


def format_faults(name: str, options: Mapping[str, Any], newer: Schema, older: Schema) -> list[str]:
    """Return why values that were written with a schema cannot be read with a newer one; nothing if they can.

    Args:
        name: name of the format of both.
        options: its options.
        newer: the schema to read with.
        older: the schema that values were written with.

    Example:
        >>> format_faults("protobuf", {}, Schema("n DOUBLE"), Schema("n INT"))
        ["column 'n' changes from integers to DOUBLE, which have other bytes in Protobuf"]
        >>> format_faults("json", {}, Schema("n DOUBLE"), Schema("n INT"))
        []
    """
    if name == "protobuf":
        before = {each.name: each.dtype for each in older.fields}
        return [
            f"column {each.name!r} changes from integers to DOUBLE, which have other bytes in Protobuf"
            for each in newer.fields
            if each.name in before and _become_doubles(each.dtype, before[each.name])
        ]
    if (
        name == "avro"
        and options.get("wire", "plain") == "plain"
        and _wire_form(newer.to_avro()) != _wire_form(older.to_avro())
    ):
        return ["values of Avro without a schema registry do not say with which schema they were written"]
    return []


def _become_doubles(newer: pa.DataType, older: pa.DataType) -> bool:
    if pa.types.is_integer(older):
        return bool(newer == pa.float64())
    return any(_become_doubles(after, before) for after, before in _pair_parts(newer, older))


def _pair_parts(newer: pa.DataType, older: pa.DataType) -> Iterator[tuple[pa.DataType, pa.DataType]]:
    kinds = pa.types
    if kinds.is_list(newer) and kinds.is_list(older):
        yield newer.value_type, older.value_type
    elif kinds.is_map(newer) and kinds.is_map(older):
        yield newer.item_type, older.item_type
    elif kinds.is_struct(newer) and kinds.is_struct(older):
        before = {field.name: field.type for field in older}
        for field in newer:
            if field.name in before:
                yield field.type, before[field.name]


def _wire_form(declared: Any) -> Any:
    """Return what decides about the bytes of a type of Avro, in a form that is equal for equal bytes."""
    if isinstance(declared, str):
        # Both have the same bytes.
        return "long" if declared == "int" else declared
    if isinstance(declared, list):
        return [_wire_form(each) for each in declared]
    kind = declared["type"]
    if kind == "record":
        return ["record", *(_wire_form(field["type"]) for field in declared["fields"])]
    for inner in ("items", "values"):
        if inner in declared:
            return [kind, _wire_form(declared[inner])]
    if "logicalType" in declared:
        return json.dumps({name: value for name, value in declared.items() if name not in (WORD, "precision")})
    return f"fixed of {declared['size']}" if kind == "fixed" else _wire_form(kind)
