"""Key columns of rows as keys of records."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from streamrt.errors import SchemaError, SchemaMismatchError, SerializationError
from streamrt.schema import Column, RowCheck, Schema
from streamrt.schema.types import type_word
from streamrt.serializers.avro import AvroDeserializer, AvroSerializer
from streamrt.serializers.base import MessageField
from streamrt.serializers.rows.batches import one_by_one, plain_columns, rows_of
from streamrt.serializers.rows.contract import KeyFormat
from streamrt.serializers.rows.json_columns import json_values
from streamrt.serializers.rows.json_rows import json_value

__all__ = ["AvroKeyFormat", "IntKeyFormat", "JSONKeyFormat", "StrKeyFormat"]


class _CheckedKeys(KeyFormat):
    """Base of formats of keys: which columns they take."""

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        super().__init__(schema, columns)
        if not columns:
            raise SchemaError("a key needs a column")
        self._part = schema.project(list(columns))
        for column in self._part.fields:
            if pa.types.is_floating(column.dtype) or pa.types.is_nested(column.dtype):
                raise SchemaError(
                    f"column {column.name!r} ({column.word}) cannot be in a key: equal keys of such a type may have "
                    "different bytes"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.schema, self.columns)

    def encode_batch(self, rows: pa.RecordBatch) -> list[bytes]:
        """Return the key of each row of a batch.

        Raises:
            SerializationError: if a key column is null: the message names the row.
        """
        return one_by_one(self.encode, rows_of(rows.select(list(self.columns))))

    def _one_column(self) -> Column:
        if len(self.columns) != 1:
            raise SchemaError(
                f"the key format {self.name!r} carries one column, and the key has {', '.join(self.columns)}: 'json' and "
                "'avro' carry several"
            )
        return self._part.fields[0]

    def _key_values(self, row: Mapping[str, Any]) -> list[Any]:
        values = [row.get(name) for name in self.columns]
        if None in values:
            name = self.columns[values.index(None)]
            raise SerializationError(f"column {name!r} is in the key and must not be null")
        return values

    def _checked(self, check: RowCheck, values: Any) -> dict[str, Any]:
        try:
            row = check(values)
        except SchemaMismatchError as error:
            raise SerializationError(f"the key does not fit: {error}") from None
        self._key_values(row)
        return row


class JSONKeyFormat(_CheckedKeys):
    """The value of one key column as JSON, or those of several as a compact array, in key order.

    Dates, times and timestamps are strings in ISO 8601, decimals strings with all digits of their scale, and bytes base64.
    """

    name = "json"

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        super().__init__(schema, columns)
        self._check = RowCheck(self._part.fields, from_json=True)

    def encode(self, row: Mapping[str, Any]) -> bytes:  # noqa: D102
        values = self._key_values(row)
        what = values[0] if len(values) == 1 else values
        try:
            return orjson.dumps(what, json_value, orjson.OPT_PASSTHROUGH_DATETIME)
        except orjson.JSONEncodeError as error:
            raise SerializationError(f"the key cannot be written: {error}") from None

    def decode(self, key: bytes) -> dict[str, Any]:  # noqa: D102
        try:
            read = orjson.loads(key)
        except orjson.JSONDecodeError as error:
            raise SerializationError(f"the key is not JSON: {error.msg} at character {error.pos}") from None
        values = [read] if len(self.columns) == 1 else read
        if not isinstance(values, list) or len(values) != len(self.columns):
            raise SerializationError(f"the key must be a JSON array with {len(self.columns)} values")
        return self._checked(self._check, values)

    def encode_batch(self, rows: pa.RecordBatch) -> list[bytes]:  # noqa: D102
        chosen = rows.select(list(self.columns))
        columns = plain_columns(chosen, self._part)
        if columns is None or any(column.null_count for column in columns):
            return super().encode_batch(chosen)
        try:
            values = [json_values(column) for column in columns]
        except (ArithmeticError, ValueError):
            return super().encode_batch(chosen)
        if len(values) == 1:
            return list(map(orjson.dumps, values[0]))
        return list(map(orjson.dumps, zip(*values, strict=True)))


class StrKeyFormat(_CheckedKeys):
    """The one key column as text: strings as they are, the others as JSON has them, without quotes."""

    name = "str"

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        super().__init__(schema, columns)
        column = self._one_column()
        dtype = column.dtype
        self._is_number = pa.types.is_integer(dtype)
        if dtype in (pa.bool_(), pa.binary()) or pa.types.is_fixed_size_binary(dtype):
            raise SchemaError(
                f"column {column.name!r} ({column.word}) cannot be a key as text: use the key format 'json'"
            )
        self._check = RowCheck(self._part.fields, from_json=True)

    def encode(self, row: Mapping[str, Any]) -> bytes:  # noqa: D102
        (value,) = self._key_values(row)
        if not isinstance(value, (str, int)):
            value = json_value(value)
        try:
            return str(value).encode()
        except UnicodeEncodeError:
            raise SerializationError(f"column {self.columns[0]!r} is in the key and must be a text of UTF-8") from None

    def decode(self, key: bytes) -> dict[str, Any]:  # noqa: D102
        try:
            text = key.decode()
            value: Any = int(text) if self._is_number else text
        except ValueError:
            word = type_word(self._part.fields[0].dtype)
            raise SerializationError(f"the key is not the text of a value of type {word}") from None
        row = self._checked(self._check, [value])
        if self.encode(row) != key:
            raise SerializationError(
                f"the key is a {type_word(self._part.fields[0].dtype)} in another form than keys have"
            )
        return row


class IntKeyFormat(_CheckedKeys):
    """The one key column, an integer, as Java's serializers write it: 8 bytes for a `BIGINT`, 4 for others, big-endian."""

    name = "int"

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        super().__init__(schema, columns)
        column = self._one_column()
        if not pa.types.is_integer(column.dtype):
            raise SchemaError(
                f"column {column.name!r} ({column.word}) cannot be a key as a number: use the key format 'json'"
            )
        self._struct = struct.Struct(">q" if column.dtype == pa.int64() else ">i")
        self._check = RowCheck(self._part.fields)

    def encode(self, row: Mapping[str, Any]) -> bytes:  # noqa: D102
        (value,) = self._key_values(row)
        try:
            return self._struct.pack(value)
        except struct.error:
            raise SerializationError(
                f"column {self.columns[0]!r} is in the key and must be an integer of {self._struct.size} bytes"
            ) from None

    def decode(self, key: bytes) -> dict[str, Any]:  # noqa: D102
        if len(key) != self._struct.size:
            raise SerializationError(f"the key has {len(key)} bytes, and must have {self._struct.size}")
        return self._checked(self._check, self._struct.unpack(key))


class AvroKeyFormat(_CheckedKeys):
    """The key columns as a record of Avro, `Key`, in key order, without a schema registry."""

    name = "avro"

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        super().__init__(schema, columns)
        # Keys are never null, and have no defaults: equal ones have equal bytes.
        fields = [{**each.as_dict(), "nullable": False} for each in self._part.fields]
        for each in fields:
            each.pop("default", None)
        record = Schema(fields).to_avro("Key")
        self._write = AvroSerializer(record).bind("", MessageField.KEY)
        self._read = AvroDeserializer(record).bind("", MessageField.KEY)
        self._check = RowCheck(self._part.fields)

    def encode(self, row: Mapping[str, Any]) -> bytes:  # noqa: D102
        key: bytes = self._write(dict(zip(self.columns, self._key_values(row), strict=True)), None)  # type: ignore[assignment]
        return key

    def decode(self, key: bytes) -> dict[str, Any]:  # noqa: D102
        return self._checked(self._check, self._read(key, None))
