"""Rows as records of Avro, one by one and in batches of Arrow."""

import datetime
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamrt.errors import SchemaMismatchError, SerializationError
from streamrt.schema import Column, RowCheck, Schema
from streamrt.serializers.avro import AvroDeserializer, AvroSerializer
from streamrt.serializers.avro.column_reading import UNSURE, AvroColumns, NotVectorizableError, column_objects
from streamrt.serializers.avro.column_writing import avro_rows
from streamrt.serializers.base import (
    BatchDeserializer,
    BoundDeserializer,
    BoundSerializer,
    Deserializer,
    MessageField,
    SerializationContext,
    Serializer,
)
from streamrt.serializers.dicts import make_dicts
from streamrt.serializers.registry import (
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
)
from streamrt.serializers.registry.framing import ID_BYTES
from streamrt.serializers.rows.batches import batch_of, has_default, one_by_one, plain_columns, rows_of
from streamrt.serializers.rows.contract import RowFormat
from streamrt.serializers.rows.registry_options import registry_options, would_be_accepted

__all__ = ["AvroRowFormat"]

_MOST_SCHEMAS = 8
_CONTEXT_FIELD = MessageField.VALUE


class AvroRowFormat(RowFormat):
    """Writes and reads rows as records of Avro: one value without a container file.

    With a registry, values have Confluent's wire format, and are read with the schema that they were written with: columns
    are found by name, missing ones get their defaults, and types may be narrower. Without one, all values must have been
    written with the schema of the format.

    Args:
        schema: what rows must fit.
        options: `name`, the full name of the record (default `Row`); `wire`, "plain" or, with a registry, "confluent";
            `auto_register`, whether the schema is registered when the first row is written (default true).
        registry: connection to the schema registry.

    Raises:
        ConfigurationError: if there is no such option, or the registry is missing.
        SchemaError: if Avro cannot carry a column.
    """

    name = "avro"

    def __init__(
        self,
        schema: Schema,
        options: Mapping[str, Any] | None = None,
        registry: SchemaRegistryClientConfig | None = None,
    ) -> None:
        super().__init__(schema)
        self._options = registry_options(self.name, options, registry)
        self._registry = registry if self._options["wire"] == "confluent" else None
        self._avro = schema.to_avro(self._options["name"])
        config = None
        if self._registry is not None:
            config = SchemaRegistrySerializationConfig(auto_register_schemas=self._options["auto_register"])
        self._serializer = AvroRowSerializer(
            schema,
            AvroSerializer(
                self._avro,
                disable_tuple_notation=True,
                schema_registry_client_config=self._registry,
                schema_registry_serialization_config=config,
            ),
        )
        self._deserializer = AvroRowDeserializer(
            schema,
            AvroDeserializer(
                None if self._registry is not None else self._avro, schema_registry_client_config=self._registry
            ),
        )
        self._readers: dict[str, Callable[[bytes], AvroColumns]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroRowFormat, (self.schema, dict(self._options), self._registry)

    @property
    def options(self) -> Mapping[str, Any]:  # noqa: D102
        return dict(self._options)

    def is_registrable(self, topic: str) -> bool:  # noqa: D102
        return would_be_accepted(self._registry, topic, json.dumps(self._avro), "AVRO")

    @property
    def serializer(self) -> Serializer:  # noqa: D102
        return self._serializer

    @property
    def deserializer(self) -> Deserializer:  # noqa: D102
        return self._deserializer

    def encode_batch(self, rows: pa.RecordBatch, topic: str) -> list[bytes]:  # noqa: D102
        columns = plain_columns(rows, self.schema)
        if columns is not None and rows.num_rows:
            prefix = b""
            try:
                if self._registry is not None:
                    prefix = self.encode(next(rows_of(rows.slice(0, 1))), topic)[:ID_BYTES]
                return avro_rows(columns, self._avro["fields"], prefix)
            except UNSURE:
                pass  # a row is odd, and writing one by one says how
        return super().encode_batch(rows, topic)

    def decode_batch(  # noqa: D102
        self, values: Sequence[bytes], topic: str, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        schema = self.schema if columns is None else self.schema.project(columns)
        try:
            return self._decode_columns(values, topic, schema)
        except UNSURE:
            pass  # a row is odd, and reading one by one says how
        read = AvroRowDeserializer(schema, self._deserializer.records)
        decode = read.bind(topic, _CONTEXT_FIELD)
        return batch_of(one_by_one(lambda value: decode(value, None), values), schema)

    def _decode_columns(self, values: Sequence[bytes], topic: str, schema: Schema) -> pa.RecordBatch:
        reader_of = self._readers.get(topic)
        if reader_of is None:
            reader_of = self._deserializer.records.bind_columns(topic, _CONTEXT_FIELD)
            if reader_of is None:
                raise NotVectorizableError
            self._readers[topic] = reader_of
        if self._registry is None:
            return _make_batch(reader_of(b""), values, 0, schema)
        prefixes: dict[bytes, list[int]] = {}
        for number, value in enumerate(values):
            prefixes.setdefault(value[:ID_BYTES], []).append(number)
        if not 0 < len(prefixes) <= _MOST_SCHEMAS or any(each[:1] != b"\0" for each in prefixes):
            raise NotVectorizableError
        parts = [
            _make_batch(reader_of(prefix), [values[number] for number in numbers], ID_BYTES, schema)
            for prefix, numbers in prefixes.items()
        ]
        if len(parts) == 1:
            return parts[0]
        order = [number for numbers in prefixes.values() for number in numbers]
        back = sorted(range(len(order)), key=order.__getitem__)
        joined = [pa.concat_arrays([part.column(each) for part in parts]) for each in range(len(schema))]
        return pa.RecordBatch.from_arrays(joined, schema=schema.arrow).take(pa.array(back, pa.int64()))


class AvroRowSerializer(Serializer):
    """Checks rows, and writes them.

    Args:
        schema: what rows must fit.
        records: writes them.
    """

    def __init__(self, schema: Schema, records: Serializer) -> None:
        self.schema = schema
        self.records = records

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        try:
            row = self.schema.check(value)
        except SchemaMismatchError as error:
            raise SerializationError(str(error)) from None
        return self.records(row, ctx)

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:
        check, write = self.schema.check, self.records.bind(topic, field)

        def serialize(value: Any, headers: Any) -> bytes | None:
            try:
                row = check(value)
            except SchemaMismatchError as error:
                raise SerializationError(str(error)) from None
            return write(row, headers)

        return serialize


class AvroRowDeserializer(Deserializer):
    """Reads records, and returns them as rows.

    Args:
        schema: what rows must fit.
        records: reads them, with the schema of the writer.
    """

    def __init__(self, schema: Schema, records: AvroDeserializer) -> None:
        self.schema = schema
        self.records = records
        takers = {each.name: _make_taker(each.dtype) for each in schema.fields}
        convert = {name: take for name, take in takers.items() if take is not None}
        self._rows = RowCheck(schema.fields, decoded=True, convert=convert)

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroRowDeserializer, (self.schema, self.records)

    def __call__(self, value: bytes, ctx: SerializationContext) -> dict[str, Any]:
        row: dict[str, Any] = self.bind(ctx.topic, ctx.field)(value, ctx.headers)
        return row

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:
        read, check = self.records.bind(topic, field), self._rows.mapping

        def deserialize(value: bytes, headers: Any) -> dict[str, Any]:
            record = read(value, headers)
            if not isinstance(record, dict):
                raise SerializationError(f"a row must be a record of Avro, not {type(record).__name__}")
            try:
                return check(record)
            except SchemaMismatchError as error:
                raise SerializationError(str(error)) from None

        return deserialize

    def bind_batch(self, topic: str, field: MessageField) -> BatchDeserializer | None:
        read = self.records.bind_arrays(topic, field)
        if read is None or any(map(pa.types.is_nested, self.schema.arrow.types)):
            return None
        schema = self.schema

        def deserialize(values: Sequence[bytes]) -> Iterable[dict[str, Any]] | None:
            try:
                columns = _fit_columns(read(values), schema, len(values))
                return make_dicts(schema.names, [column_objects(column) for column in columns])
            except UNSURE:
                return None

        return deserialize


def _make_taker(dtype: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what takes values of a type from those of a writer with a wider or an older one; None if they are the same."""
    if pa.types.is_struct(dtype):
        fields = [(field.name, _make_taker(field.type) or _return_value) for field in dtype]
        # What the writer has besides is left out.
        return lambda value: (
            {name: take(value[name]) for name, take in fields if name in value} if isinstance(value, dict) else value
        )
    if pa.types.is_list(dtype):
        item = _make_taker(dtype.value_type)
        if item is None:
            return None
        return lambda value: [item(each) for each in value] if isinstance(value, list) else value
    if pa.types.is_map(dtype):
        inner = _make_taker(dtype.item_type)
        if inner is None:
            return None
        return lambda value: {key: inner(each) for key, each in value.items()} if isinstance(value, dict) else value
    if dtype == pa.string():
        return lambda value: str(value) if isinstance(value, uuid.UUID) else value
    if dtype == pa.timestamp("us"):
        return lambda value: (
            datetime.datetime.combine(value, datetime.time())
            if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
            else value
        )
    return None


def _return_value(value: Any) -> Any:
    return value


# -- Batches -----------------------------------------------------------------------------------------------------------


def _make_batch(reader: AvroColumns, values: Sequence[bytes], skipped: int, schema: Schema) -> pa.RecordBatch:
    read = reader.read(values, skipped, frozenset(schema.names))
    return pa.RecordBatch.from_arrays(_fit_columns(read, schema, len(values)), schema=schema.arrow)


def _fit_columns(read: Mapping[str, pa.Array], schema: Schema, rows: int) -> list[pa.Array]:
    return [_make_column(read.get(column.name), column, rows) for column in schema.fields]


def _make_column(array: pa.Array | None, column: Column, rows: int) -> pa.Array:
    if array is None:
        if has_default(column):
            return pa.array([column.default] * rows, column.dtype)
        array = pa.nulls(rows, column.dtype)
    fitted = _fit_values(array, column.dtype)
    if fitted.null_count and not column.nullable:
        raise NotVectorizableError
    if column.length is not None and (pc.max(pc.utf8_length(fitted)).as_py() or 0) > column.length:
        raise NotVectorizableError
    return fitted


def _fit_values(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return values of a writer's type as those of a column's, if these hold all of them."""
    kinds = pa.types
    if kinds.is_struct(dtype) and kinds.is_struct(array.type):
        return _fitted_struct(array, dtype)
    if kinds.is_list(dtype) and kinds.is_list(array.type):
        items = _fit_values(array.flatten(), dtype.value_type)
        if items.null_count and not dtype.value_field.nullable:
            raise NotVectorizableError
        lengths = pc.list_value_length(array).fill_null(0)
        offsets = pa.array([0, *pc.cumulative_sum(lengths).to_pylist()], pa.int32())
        return pa.ListArray.from_arrays(offsets, items, type=dtype, mask=array.is_null() if array.null_count else None)
    if array.type == dtype:
        if kinds.is_map(dtype) and kinds.is_nested(dtype.item_type):
            raise NotVectorizableError
        return array
    if kinds.is_map(dtype) and kinds.is_map(array.type) and dtype.key_type == array.type.key_type:
        same = not array.null_count and not kinds.is_nested(dtype.item_type)
        items = _fit_values(array.items, dtype.item_type) if same else None
        if items is None or (items.null_count and not dtype.item_field.nullable):
            raise NotVectorizableError
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=dtype)
    if not _holds_all(dtype, array.type):
        raise NotVectorizableError
    return array.cast(dtype)


def _fitted_struct(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    children = dict(zip([field.name for field in array.type], array.flatten(), strict=True))
    fitted = []
    for field in dtype:
        child = children.get(field.name)
        child = pa.nulls(len(array), field.type) if child is None else _fit_values(child, field.type)
        if not field.nullable and child.null_count > array.null_count:
            raise NotVectorizableError
        fitted.append(child)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(fitted, fields=list(dtype), mask=mask)


def _holds_all(wide: pa.DataType, narrow: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_null(narrow)
        or (kinds.is_integer(wide) and kinds.is_integer(narrow))
        or (wide == pa.float64() and (kinds.is_integer(narrow) or narrow == pa.float32()))
        or (kinds.is_decimal128(wide) and kinds.is_decimal128(narrow))
        or (wide == pa.timestamp("us") and narrow == pa.date32())
        or (wide == pa.binary() and kinds.is_fixed_size_binary(narrow))
    )
