"""Rows as JSON objects, one by one and in batches of Arrow."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streamrt.errors import SchemaMismatchError
from streamrt.schema import Column, Schema
from streamrt.schema.columns import column_check
from streamrt.schema.values import ValueMismatchError
from streamrt.serializers.base import MessageField
from streamrt.serializers.dicts import make_dicts
from streamrt.serializers.rows.batches import batch_of, has_default, one_by_one, plain_columns
from streamrt.serializers.rows.contract import RowFormat
from streamrt.serializers.rows.json_columns import json_column, json_values
from streamrt.serializers.rows.json_rows import RowDeserializer, RowSerializer, write_json

__all__ = ["JSONRowFormat"]

_MISSING: Any = object()


class JSONRowFormat(RowFormat):
    """Writes and reads rows as JSON objects, as `RowSerializer` and `RowDeserializer` do.

    Batches are read object by object, and then column by column: the values of a column become an array at once where all
    of them have the usual form, and are checked one by one otherwise.

    Args:
        schema: what rows must fit.
    """

    name = "json"

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._serializer = RowSerializer(schema)
        self._deserializer = RowDeserializer(schema)
        # Options make orjson slower, and `json_values` leaves nothing to convert but keys.
        self._write = write_json if any(map(_has_maps, schema.arrow.types)) else orjson.dumps

    @property
    def serializer(self) -> RowSerializer:  # noqa: D102
        return self._serializer

    @property
    def deserializer(self) -> RowDeserializer:  # noqa: D102
        return self._deserializer

    def encode(self, row: Mapping[str, Any] | Sequence[Any], topic: str) -> bytes:  # noqa: D102
        data: bytes = self._serializer.bind(topic, MessageField.VALUE)(row, None)  # type: ignore[assignment]
        return data

    def encode_checked(self, row: Mapping[str, Any], topic: str) -> bytes:  # noqa: D102
        return self._serializer.write(row)

    def encode_batch(self, rows: pa.RecordBatch, topic: str) -> list[bytes]:  # noqa: D102
        columns = plain_columns(rows, self.schema)
        if columns:
            try:
                values = [json_values(column) for column in columns]
                return list(map(self._write, make_dicts(self.schema.names, values)))
            except (pa.ArrowException, ArithmeticError, KeyError, TypeError, ValueError):
                pass  # a row does not fit, and the error says which
        return super().encode_batch(rows, topic)

    def decode_batch(  # noqa: D102
        self, values: Sequence[bytes], topic: str, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        schema = self.schema if columns is None else self.schema.project(columns)
        try:
            rows = list(map(orjson.loads, values))
            if {dict}.issuperset(map(type, rows)):
                arrays = [_make_array(rows, column) for column in schema.fields]
                return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
        except (ValueMismatchError, SchemaMismatchError, orjson.JSONDecodeError):
            pass  # a row does not fit, and the error says which
        read = self._deserializer if columns is None else RowDeserializer(schema)
        decode = read.bind(topic, MessageField.VALUE)
        return batch_of(one_by_one(lambda value: decode(value, None), values), schema)


def _make_array(rows: Sequence[dict[str, Any]], column: Column) -> pa.Array:
    """Return one column of rows; a row that does not fit is an error without its number."""
    name = column.name
    if has_default(column):
        values = [row.get(name, _MISSING) for row in rows]
    else:
        values = [row.get(name) for row in rows]
        if not column.nullable and None in values:
            raise SchemaMismatchError(f"column {name!r} is missing or null")
    array = json_column(column.dtype, column.nullable)(values)
    if array is not None and column.length is not None and (pc.max(pc.utf8_length(array)).as_py() or 0) > column.length:
        raise SchemaMismatchError(f"column {name!r} is too long")
    if array is not None:
        return array
    check = column_check(column, from_json=True)
    return pa.array([column.default if each is _MISSING else check(each) for each in values], column.dtype)


def _has_maps(dtype: pa.DataType) -> bool:
    return pa.types.is_map(dtype) or any(_has_maps(dtype.field(number).type) for number in range(dtype.num_fields))
