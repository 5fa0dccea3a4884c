"""Rows with one column, whose value is the whole value of a record."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from streamrt.errors import ConfigurationError, SchemaError, SchemaMismatchError, SerializationError
from streamrt.schema import RowCheck, Schema
from streamrt.schema.types import type_word
from streamrt.serializers.base import (
    BoundDeserializer,
    BoundSerializer,
    Deserializer,
    DeserializerType,
    MessageField,
    SerializationContext,
    Serializer,
    SerializerType,
)
from streamrt.serializers.rows.batches import batch_of, one_by_one
from streamrt.serializers.rows.contract import RowFormat
from streamrt.serializers.rows.json_rows import RowSerializer
from streamrt.serializers.simple import (
    BytesDeserializer,
    BytesSerializer,
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    StringDeserializer,
    StringSerializer,
)

__all__ = ["RAW_SCHEMA", "RawRowFormat", "SingleRowFormat", "StringRowFormat"]

_INTEGERS = (pa.int8(), pa.int16(), pa.int32())
_PAIRS: dict[str, tuple[type[Serializer], type[Deserializer], tuple[pa.DataType, ...]]] = {
    "string": (StringSerializer, StringDeserializer, (pa.string(),)),
    "bytes": (BytesSerializer, BytesDeserializer, (pa.binary(),)),
    "int": (IntegerSerializer, IntegerDeserializer, _INTEGERS),
    "double": (DoubleSerializer, DoubleDeserializer, (pa.float64(),)),
}
_WORDS = (*_PAIRS, "json")


RAW_SCHEMA = Schema({"value": "BINARY"})
"""The schema of rows of the format `raw`."""


class SingleRowFormat(RowFormat):
    """Writes the value of the one column as the value of a record.

    Args:
        schema: the column. Null has no bytes, except in JSON.
        options: `serializer`: "string", "bytes", "int" (4 bytes), "double" (8 bytes) or "json". The default is what the type
            of the column has, and else "json".

    Raises:
        ConfigurationError: if there is no such option.
        SchemaError: if there are several columns, or the serializer does not carry the type of the one.
    """

    name = "single"

    def __init__(self, schema: Schema, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(schema)
        unknown = sorted((options or {}).keys() - {"serializer"})
        if unknown:
            raise ConfigurationError(f"the format {self.name!r} has no option {unknown[0]!r}; it has 'serializer'")
        if len(schema) != 1:
            raise SchemaError(
                f"the format {self.name!r} carries one column, and the schema has {len(schema)}: {', '.join(schema.names)}"
            )
        column = schema.fields[0]
        usual = next((word for word, (_, _, types) in _PAIRS.items() if column.dtype in types), "json")
        self._word = (options or {}).get("serializer", usual)
        if self._word not in _WORDS:
            raise ConfigurationError(
                f"the option 'serializer' of the format {self.name!r} must be one of {', '.join(_WORDS)}"
            )
        if self._word in _PAIRS and column.dtype not in _PAIRS[self._word][2]:
            carried = ", ".join(map(type_word, _PAIRS[self._word][2]))
            raise SchemaError(
                f"column {column.name!r} ({column.word}) cannot be written by the serializer {self._word!r}, which carries "
                f"{carried}; 'json' carries every type"
            )
        self._serializer: Serializer = _OneSerializer(schema, self._word)
        self._deserializer: Deserializer = _OneDeserializer(schema, self._word)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.schema, dict(self.options))

    @property
    def options(self) -> Mapping[str, Any]:  # noqa: D102
        return {"serializer": self._word}

    @property
    def serializer(self) -> Serializer:  # noqa: D102
        return self._serializer

    @property
    def deserializer(self) -> Deserializer:  # noqa: D102
        return self._deserializer

    def decode_batch(  # noqa: D102
        self, values: Sequence[bytes], topic: str, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        schema = self.schema if columns is None else self.schema.project(columns)
        column = schema.fields[0]
        if column.length is None and self._word in ("string", "bytes"):
            try:
                # Arrow refuses what is not UTF-8.
                array = pa.array(values, pa.binary()).cast(column.dtype)
                return pa.RecordBatch.from_arrays([array], schema=schema.arrow)
            except (pa.ArrowException, TypeError):
                pass  # the error names the row
        return batch_of(one_by_one(lambda value: self.decode(value, topic), values), schema)


class StringRowFormat(SingleRowFormat):
    """Writes the text of the one column, a `STRING`, as UTF-8.

    Args:
        schema: the column.
        options: none.
    """

    name = "string"

    def __init__(self, schema: Schema, options: Mapping[str, Any] | None = None) -> None:
        if options:
            raise ConfigurationError(f"the format {self.name!r} has no option {sorted(options)[0]!r}")
        super().__init__(schema, {"serializer": "string"})

    def __reduce__(self) -> tuple[Any, ...]:
        return StringRowFormat, (self.schema,)

    @property
    def options(self) -> Mapping[str, Any]:  # noqa: D102
        return {}


class RawRowFormat(RowFormat):
    """Values of a topic as any serializers make them, without a schema: rows are `{"value": ...}`.

    Batches need types, and only bytes have one here: those of other values are refused.

    Args:
        serializer: writes the values.
        deserializer: reads them.
        words: names of both, which a catalogue keeps; or the objects.
        schema: the one column, `value BINARY`, nullable or not.
    """

    name = "raw"

    def __init__(
        self,
        serializer: Serializer,
        deserializer: Deserializer,
        words: tuple[SerializerType, DeserializerType],
        schema: Schema | None = None,
    ) -> None:
        super().__init__(RAW_SCHEMA if schema is None else schema)
        self._words = words
        self._inner = (serializer, deserializer)
        self._serializer = _RawSerializer(serializer)
        self._deserializer = _RawDeserializer(deserializer)

    def __reduce__(self) -> tuple[Any, ...]:
        return RawRowFormat, (*self._inner, self._words, self.schema)

    @property
    def options(self) -> Mapping[str, Any]:
        """Names of the serializers.

        Raises:
            ConfigurationError: if they are objects, which no catalogue can keep.
        """
        written, read = self._words
        if not isinstance(written, str) or not isinstance(read, str):
            raise ConfigurationError(
                "a catalogue cannot keep serializers that are objects: give their names to the format 'raw'"
            )
        return {"serializer": written, "deserializer": read}

    @property
    def serializer(self) -> Serializer:  # noqa: D102
        return self._serializer

    @property
    def deserializer(self) -> Deserializer:  # noqa: D102
        return self._deserializer

    def encode(self, row: Mapping[str, Any] | Sequence[Any], topic: str) -> bytes:  # noqa: D102
        data = self._serializer(row, SerializationContext(topic, MessageField.VALUE))
        if data is None:
            raise SerializationError("column 'value' must not be null: it would be no row")
        return data

    def encode_batch(self, rows: pa.RecordBatch, topic: str) -> list[bytes]:  # noqa: D102
        self._refuse_batches()
        return super().encode_batch(rows, topic)

    def decode_batch(  # noqa: D102
        self, values: Sequence[bytes], topic: str, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        self._refuse_batches()
        schema = self.schema if columns is None else self.schema.project(columns)
        return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=schema.arrow)

    def _refuse_batches(self) -> None:
        if not isinstance(self._inner[1], BytesDeserializer):
            raise SerializationError(
                "values of the format 'raw' have no types, which batches need: give the table a schema and another format"
            )


class _OneSerializer(Serializer):
    def __init__(self, schema: Schema, word: str) -> None:
        self._schema = schema
        self._word = word

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        return self.bind(ctx.topic, ctx.field)(value, ctx.headers)

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:
        check, name, word = self._schema.check, self._schema.names[0], self._word
        if word == "json":
            rows = RowSerializer(self._schema).bind(topic, field)
            before = len(orjson.dumps({name: 0})) - 2

            def write(row: Any, headers: Any) -> bytes | None:
                data: bytes = rows(row, headers)  # type: ignore[assignment]
                return data[before:-1]

            return write
        inner = _PAIRS[word][0]().bind(topic, field)

        def serialize(row: Any, headers: Any) -> bytes | None:
            try:
                value = check(row)[name]
            except SchemaMismatchError as error:
                raise SerializationError(str(error)) from None
            if value is None:
                raise SerializationError(
                    f"column {name!r} must not be null: the serializer {word!r} has no bytes for it"
                )
            return inner(value, headers)

        return serialize


class _OneDeserializer(Deserializer):
    def __init__(self, schema: Schema, word: str) -> None:
        self._schema = schema
        self._word = word

    def __call__(self, value: bytes, ctx: SerializationContext) -> dict[str, Any]:
        row: dict[str, Any] = self.bind(ctx.topic, ctx.field)(value, ctx.headers)
        return row

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:
        name, word = self._schema.names[0], self._word
        check = RowCheck(self._schema.fields, from_json=word == "json")
        read = _read_json if word == "json" else _PAIRS[word][1]().bind(topic, field)

        def deserialize(value: bytes, headers: Any) -> dict[str, Any]:
            try:
                return check({name: read(value, headers)})
            except SchemaMismatchError as error:
                raise SerializationError(str(error)) from None

        return deserialize


def _read_json(value: bytes, headers: Any) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise SerializationError(f"not JSON: {error.msg} at character {error.pos}") from None


class _RawSerializer(Serializer):
    def __init__(self, inner: Serializer) -> None:
        self._inner = inner

    @property
    def extra_headers(self) -> Any:
        return self._inner.extra_headers

    @property
    def writes_headers(self) -> bool:
        return self._inner.writes_headers

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        return self._inner(_raw_value(value), ctx)

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:
        write = self._inner.bind(topic, field)
        return lambda value, headers: write(_raw_value(value), headers)


class _RawDeserializer(Deserializer):
    def __init__(self, inner: Deserializer) -> None:
        if inner.split_values:
            raise ConfigurationError(
                f"{type(inner).__name__} makes several rows of a value, which the format 'raw' does not have"
            )
        self._inner = inner

    def __call__(self, value: bytes, ctx: SerializationContext) -> dict[str, Any]:
        return {"value": self._inner(value, ctx)}

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:
        read: Callable[..., Any] = self._inner.bind(topic, field)
        return lambda value, headers: {"value": read(value, headers)}


def _raw_value(row: Any) -> Any:
    if isinstance(row, Mapping) and row.keys() == {"value"}:
        return row["value"]
    if isinstance(row, (list, tuple)) and len(row) == 1:
        return row[0]
    raise SerializationError("a row of the format 'raw' must have one column, 'value'")
