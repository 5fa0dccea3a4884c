"""Rows as messages of Protobuf, whose type is made from the schema.

    BOOLEAN bool · integers int64 · FLOAT, DOUBLE double · STRING, DECIMAL string · BINARY bytes
    DATE, TIME, TIMESTAMP string, in ISO 8601 · TIMESTAMP_LTZ google.protobuf.Timestamp
    ARRAY<T> repeated T · MAP<K, V> map<K, V> · STRUCT<...> a message within the message

So a column may become wider (`INT` to `BIGINT`, `FLOAT` to `DOUBLE`, `DATE` to `TIMESTAMP`) and bytes of both have the same
type. Where they do not (`INT` to `DOUBLE`), Protobuf would read them as not set; such values are refused. That is why lists
of integers are not packed: the bytes of packed lists do not say of what they are.

Fields that are neither lists nor maps are `optional`, so that null is not zero. Null cannot be told from a column that is not
there, though, which has its default; so where there is a default, null is refused.

Fields have numbers, and bytes name nothing else: each column keeps its number while the schema changes, so the numbers are
options of the format.
"""

import datetime
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamrt.errors import ConfigurationError, SchemaError, SchemaMismatchError, SerializationError
from streamrt.schema import RowCheck, Schema
from streamrt.schema.types import type_word
from streamrt.serializers.base import (
    BoundDeserializer,
    BoundSerializer,
    Deserializer,
    MessageField,
    SerializationContext,
    Serializer,
)
from streamrt.serializers.protobuf import ProtobufDeserializer, ProtobufSerializer
from streamrt.serializers.registry import SchemaRegistryClientConfig, SchemaRegistrySerializationConfig
from streamrt.serializers.rows.batches import batch_of, has_default, one_by_one, rows_of
from streamrt.serializers.rows.contract import RowFormat
from streamrt.serializers.rows.json_rows import json_value
from streamrt.serializers.rows.registry_options import registry_options

__all__ = ["ProtobufRowFormat"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_RESERVED_NUMBERS = range(19_000, 20_000)
_MAX_NUMBER = (1 << 29) - 1
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_UTC = datetime.timezone.utc

_KINDS: dict[pa.DataType, str] = {
    pa.bool_(): "TYPE_BOOL",
    pa.int8(): "TYPE_INT64",
    pa.int16(): "TYPE_INT64",
    pa.int32(): "TYPE_INT64",
    pa.int64(): "TYPE_INT64",
    pa.float32(): "TYPE_DOUBLE",
    pa.float64(): "TYPE_DOUBLE",
    pa.string(): "TYPE_STRING",
    pa.binary(): "TYPE_BYTES",
    pa.date32(): "TYPE_STRING",
    pa.time32("ms"): "TYPE_STRING",
    pa.timestamp("us"): "TYPE_STRING",
}
_KEYS = (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string())


class ProtobufRowFormat(RowFormat):
    """Writes and reads rows as messages of Protobuf; the type of the messages is made from the schema.

    With a registry, values have Confluent's wire format, and the type is registered as text. Protobuf has no null lists and
    maps, and no nulls in them: rows with such are refused, and what is not there is read as empty.

    Args:
        schema: what rows must fit.
        options: `name`, the full name of the message (default `Row`); `wire`, "plain" or, with a registry, "confluent";
            `auto_register`, whether the type is registered when the first row is written (default true); `numbers`, the
            number of each column, those of structs as `home.street`. Columns that it lacks get the next numbers.
        registry: connection to the schema registry.

    Raises:
        ConfigurationError: if there is no such option, the registry is missing, or Protobuf is not installed.
        SchemaError: if Protobuf cannot carry a column.
    """

    name = "protobuf"

    def __init__(
        self,
        schema: Schema,
        options: Mapping[str, Any] | None = None,
        registry: SchemaRegistryClientConfig | None = None,
    ) -> None:
        super().__init__(schema)
        given = dict(options or {})
        numbers = _field_numbers(schema, given.pop("numbers", {}))
        self._options = registry_options(self.name, given, registry, also=("numbers",))
        self._options["numbers"] = numbers
        self._registry = registry if self._options["wire"] == "confluent" else None
        self._messages = _Messages(schema, self._options["name"], tuple(sorted(numbers.items())))
        self._serializer = _MessageSerializer(schema, self._messages, self._registry, self._options["auto_register"])
        self._deserializer = _MessageDeserializer(schema, self._messages, self._registry)

    def __reduce__(self) -> tuple[Any, ...]:
        return ProtobufRowFormat, (self.schema, self.options, self._registry)

    @property
    def options(self) -> Mapping[str, Any]:  # noqa: D102
        return {**self._options, "numbers": dict(self._options["numbers"])}

    def is_registrable(self, topic: str) -> bool:  # noqa: D102
        return self._serializer.is_registrable(topic)

    @property
    def serializer(self) -> Serializer:  # noqa: D102
        return self._serializer

    @property
    def deserializer(self) -> Deserializer:  # noqa: D102
        return self._deserializer

    def encode_batch(self, rows: pa.RecordBatch, topic: str) -> list[bytes]:  # noqa: D102
        write = self._serializer.bind(topic, MessageField.VALUE)
        written: list[Any] = one_by_one(lambda row: write(row, None), rows_of(rows))
        return written

    def decode_batch(  # noqa: D102
        self, values: Sequence[bytes], topic: str, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        schema, read = self.schema, self._deserializer
        if columns is not None:
            schema = schema.project(columns)
            read = _MessageDeserializer(schema, self._messages, self._registry)
        decode = read.bind(topic, MessageField.VALUE)
        return batch_of(one_by_one(lambda value: decode(value, None), values), schema)


# -- The type of messages ----------------------------------------------------------------------------------------------


def _field_numbers(schema: Schema, given: Any) -> dict[str, int]:
    """Return the number of each field by its path; those that are gone keep theirs."""
    if not isinstance(given, Mapping) or not all(
        isinstance(path, str) and type(number) is int and 0 < number <= _MAX_NUMBER and number not in _RESERVED_NUMBERS
        for path, number in given.items()
    ):
        raise ConfigurationError(
            "the option 'numbers' of the format 'protobuf' must have a number for each column, from 1 to "
            f"{_MAX_NUMBER}, without {_RESERVED_NUMBERS.start} to {_RESERVED_NUMBERS.stop - 1}"
        )
    numbers = dict(given)

    def visit(names: Sequence[str], types: Sequence[pa.DataType], above: str) -> None:
        depth = above.count(".")
        beside = [number for path, number in numbers.items() if path.startswith(above) and path.count(".") == depth]
        if len(set(beside)) != len(beside):
            raise ConfigurationError("the option 'numbers' of the format 'protobuf' has a number twice")
        highest = max(beside, default=0)
        for name, dtype in zip(names, types, strict=True):
            path = above + name
            if path not in numbers:
                highest += 1
                if highest in _RESERVED_NUMBERS:
                    highest = _RESERVED_NUMBERS.stop
                if highest > _MAX_NUMBER:
                    raise SchemaError(f"no number is left for the column {path!r} in Protobuf, which has {_MAX_NUMBER}")
                numbers[path] = highest
            inner = _struct_in(dtype)
            if inner is not None:
                visit([field.name for field in inner], [field.type for field in inner], f"{path}.")

    for name in schema.names:
        _checked_name(name, f"column {name!r}")
    visit(schema.names, schema.arrow.types, "")
    return numbers


def _struct_in(dtype: pa.DataType) -> pa.DataType | None:
    if pa.types.is_list(dtype):
        dtype = dtype.value_type
    elif pa.types.is_map(dtype):
        dtype = dtype.item_type
    return dtype if pa.types.is_struct(dtype) else None


def _checked_name(name: str, where: str) -> str:
    if not _NAME.fullmatch(name):
        raise SchemaError(
            f"{where} cannot be written in Protobuf: its names begin with a letter and have letters, digits and _, and "
            f"{name!r} does not"
        )
    return name


class _Messages:
    """The class of messages; a pickled one is made again.

    Args:
        schema: the columns.
        name: full name of the message.
        numbers: number of each field by its path.
    """

    def __init__(self, schema: Schema, name: str, numbers: tuple[tuple[str, int], ...]) -> None:
        self._given = (schema, name, numbers)
        for part in name.split("."):
            if not _NAME.fullmatch(part):
                raise SchemaError(f"{name!r} is not the name of a message in Protobuf")
        self.type = _message_class(*_describe_message(schema, name, dict(numbers)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Messages, self._given


def _describe_message(schema: Schema, name: str, numbers: Mapping[str, int]) -> tuple[bytes, str]:
    """Return the serialized file with the type of the messages, and its full name."""
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
    except ImportError as error:
        from streamrt.extras import install_command

        raise ConfigurationError(
            f"Protobuf needs packages that are not installed ({error}): run {install_command('protobuf')}"
        ) from error
    package, _, message_name = name.rpartition(".")
    file = FileDescriptorProto(name=f"{name}.proto", package=package, syntax="proto3")
    message = file.message_type.add(name=message_name)
    fields = [(each.name, each.dtype, f"column {each.name!r} ({each.word})") for each in schema.fields]
    uses_instants = _add_fields(message, f".{name}", fields, "", numbers)
    if uses_instants:
        file.dependency.append("google/protobuf/timestamp.proto")
    return file.SerializeToString(), name


@functools.lru_cache(maxsize=200)
def _message_class(file: bytes, name: str) -> Any:
    from google.protobuf import timestamp_pb2
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    try:
        pool.AddSerializedFile(file)
        return GetMessageClass(pool.FindMessageTypeByName(name))
    except (TypeError, KeyError, ValueError) as error:
        # Such as two columns whose names are the same in lowerCamelCase.
        raise SchemaError(f"the columns cannot be written in Protobuf: {error}") from None


def _add_fields(
    message: Any,
    path: str,
    fields: Sequence[tuple[str, pa.DataType, str]],
    above: str,
    numbers: Mapping[str, int],
) -> bool:
    """Describe fields; return whether a type of another file is used."""
    from google.protobuf.message import Message

    uses_instants = False
    for name, dtype, where in fields:
        if hasattr(Message, name):
            raise SchemaError(f"{where} cannot be written in Protobuf: in Python, messages have a method {name!r}")
        field = message.field.add(name=_checked_name(name, where), number=numbers[above + name])
        field.label = field.LABEL_OPTIONAL
        inner = dtype
        if pa.types.is_list(dtype):
            field.label = field.LABEL_REPEATED
            inner = dtype.value_type
            if pa.types.is_integer(inner):
                field.options.packed = False
        elif pa.types.is_map(dtype):
            inner = dtype.item_type
            field.label = field.LABEL_REPEATED
            entry = message.nested_type.add(name=_nested_name(name, "Entry"))
            entry.options.map_entry = True
            _set_kind(entry.field.add(name="key", number=1, label=field.LABEL_OPTIONAL), dtype.key_type, where, path)
            if dtype.key_type not in _KEYS:
                raise SchemaError(
                    f"{where} cannot be written in Protobuf: keys of its maps are integers, booleans and texts, and these "
                    f"are {type_word(dtype.key_type)}"
                )
            field.type, field.type_name = field.TYPE_MESSAGE, f"{path}.{entry.name}"
            field = entry.field.add(name="value", number=2, label=field.LABEL_OPTIONAL)
        if pa.types.is_struct(inner):
            type_name = _nested_name(name, "Row")
            nested = message.nested_type.add(name=type_name)
            below = [(part.name, part.type, where) for part in inner]
            uses_instants |= _add_fields(nested, f"{path}.{type_name}", below, f"{above}{name}.", numbers)
            field.type, field.type_name = field.TYPE_MESSAGE, f"{path}.{type_name}"
            continue
        uses_instants |= _set_kind(field, inner, where, path)
        if inner is dtype and field.type != field.TYPE_MESSAGE:
            # As protoc does for `optional`: a field without one does not know whether it was set.
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
    return uses_instants


def _nested_name(name: str, suffix: str) -> str:
    # Protobuf derives the name of entries from that of the field.
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + suffix


def _set_kind(field: Any, dtype: pa.DataType, where: str, path: str) -> bool:
    if dtype == pa.timestamp("us", "UTC"):
        field.type, field.type_name = field.TYPE_MESSAGE, ".google.protobuf.Timestamp"
        return True
    kind = _KINDS.get(dtype)
    if pa.types.is_decimal128(dtype):
        kind = "TYPE_STRING"
    elif pa.types.is_fixed_size_binary(dtype):
        kind = "TYPE_BYTES"
    if kind is None:
        raise SchemaError(
            f"{where} cannot be written in Protobuf: its lists and maps have no lists and maps as elements; a STRUCT around "
            "them can be one"
        )
    field.type = field.Type.Value(kind)
    return False


# -- Values ------------------------------------------------------------------------------------------------------------

Setter = Callable[[Any, Any], None]
Getter = Callable[[Any], Any]


class _RowError(Exception):
    """A row has what Protobuf has not."""


def _to_plain(dtype: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what makes a field's value of a column's; None if they are the same."""
    if pa.types.is_decimal128(dtype) or dtype in (pa.date32(), pa.time32("ms"), pa.timestamp("us")):
        return json_value
    return None


def _set_instant(message: Any, value: datetime.datetime) -> None:
    microseconds = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    message.seconds, rest = divmod(microseconds, 1_000_000)
    message.nanos = rest * 1000
    message.SetInParent()


def _read_instant(name: str, message: Any) -> datetime.datetime:
    if not 0 <= message.nanos < 1_000_000_000 or message.nanos % 1000:
        raise _RowError(f"{name!r} has a time with nanoseconds, which TIMESTAMP_LTZ does not have")
    try:
        moment = _EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except OverflowError:
        raise _RowError(f"{name!r} has a time outside of the years 1 to 9999") from None
    return moment.replace(tzinfo=_UTC)


def _make_filler(fields: Sequence[tuple[str, pa.DataType]]) -> Setter:
    """Return what sets the fields of a message to the values of a row."""
    setters = [(name, _make_setter(name, dtype)) for name, dtype in fields]

    def fill(message: Any, row: Mapping[str, Any]) -> None:
        for name, each in setters:
            each(message, row[name])

    return fill


def _make_setter(name: str, dtype: pa.DataType) -> Setter:
    if pa.types.is_list(dtype):
        return _list_setter(name, dtype)
    if pa.types.is_map(dtype):
        return _map_setter(name, dtype)
    fill = _message_filler(dtype)
    if fill is not None:

        def set_message(message: Any, value: Any) -> None:
            if value is not None:
                inner = getattr(message, name)
                inner.SetInParent()
                fill(inner, value)

        return set_message
    convert = _to_plain(dtype)

    def set_plain(message: Any, value: Any) -> None:
        if value is not None:
            setattr(message, name, value if convert is None else convert(value))

    return set_plain


def _message_filler(dtype: pa.DataType) -> Setter | None:
    if pa.types.is_struct(dtype):
        return _make_filler([(field.name, field.type) for field in dtype])
    return _set_instant if dtype == pa.timestamp("us", "UTC") else None


def _list_setter(name: str, dtype: pa.DataType) -> Setter:
    fill, convert = _message_filler(dtype.value_type), _to_plain(dtype.value_type)

    def set_list(message: Any, value: Any) -> None:
        if value is None or None in value:
            raise _RowError(f"{name!r} must not be null, nor have nulls in it: Protobuf has no such lists")
        items = getattr(message, name)
        if fill is None:
            items.extend(value if convert is None else map(convert, value))
        else:
            for each in value:
                fill(items.add(), each)

    return set_list


def _map_setter(name: str, dtype: pa.DataType) -> Setter:
    fill, convert = _message_filler(dtype.item_type), _to_plain(dtype.item_type)

    def set_map(message: Any, value: Any) -> None:
        if value is None or None in value.values():
            raise _RowError(f"{name!r} must not be null, nor have nulls in it: Protobuf has no such maps")
        items = getattr(message, name)
        for key, each in value.items():
            if fill is None:
                items[key] = each if convert is None else convert(each)
            else:
                fill(items[key], each)

    return set_map


def _make_reader(fields: Sequence[tuple[str, pa.DataType]]) -> Getter:
    """Return what makes a row of a message; what was not set is left out."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    getters = [(name, *_make_getter(name, dtype)) for name, dtype in fields]
    names = frozenset(name for name, _ in fields)

    def read(message: Any) -> dict[str, Any]:
        for unknown in UnknownFieldSet(message):  # type: ignore[attr-defined]
            known = message.DESCRIPTOR.fields_by_number.get(unknown.field_number)
            if known is not None and known.name in names:
                raise _RowError(f"{known.name!r} was written with another type: Protobuf cannot read both")
        return {name: get(getattr(message, name)) for name, many, get in getters if many or message.HasField(name)}

    return read


def _make_getter(name: str, dtype: pa.DataType) -> tuple[bool, Getter]:
    """Return whether there may be many values, and what makes a column's value of a field's."""
    if pa.types.is_list(dtype):
        _, item = _make_getter(name, dtype.value_type)
        return True, lambda values: [item(each) for each in values]
    if pa.types.is_map(dtype):
        _, inner = _make_getter(name, dtype.item_type)
        return True, lambda values: {key: inner(values[key]) for key in values}
    if pa.types.is_struct(dtype):
        return False, _make_reader([(field.name, field.type) for field in dtype])
    # Strings become what they mean when rows are checked.
    return False, functools.partial(_read_instant, name) if dtype == pa.timestamp("us", "UTC") else _return_value


def _return_value(value: Any) -> Any:
    return value


class _MessageSerializer(Serializer):
    def __init__(
        self, schema: Schema, messages: _Messages, registry: SchemaRegistryClientConfig | None, auto_register: bool
    ) -> None:
        self._given = (schema, messages, registry, auto_register)
        self._schema = schema
        self._messages = messages
        config = None
        if registry is not None:
            config = SchemaRegistrySerializationConfig(auto_register_schemas=auto_register)
        self._write = ProtobufSerializer(
            messages.type,
            deterministic=True,
            schema_registry_client_config=registry,
            schema_registry_serialization_config=config,
        )
        self._fill = _make_filler([(each.name, each.dtype) for each in schema.fields])
        self._with_default = [each.name for each in schema.fields if has_default(each)]

    def __reduce__(self) -> tuple[Any, ...]:
        return _MessageSerializer, self._given

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        return self._write(self._make_message(value), ctx)

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:
        write, message = self._write.bind(topic, field), self._make_message
        return lambda value, headers: write(message(value), headers)

    def is_registrable(self, topic: str) -> bool:
        return self._write.is_registrable(topic, MessageField.VALUE)

    def _make_message(self, value: Any) -> Any:
        try:
            row = self._schema.check(value)
            for name in self._with_default:
                if row[name] is None:
                    raise _RowError(f"{name!r} must not be null: it would be read as its default in Protobuf")
            message = self._messages.type()
            self._fill(message, row)
        except SchemaMismatchError as error:
            raise SerializationError(str(error)) from None
        except _RowError as error:
            raise SerializationError(f"column {error}") from None
        return message


class _MessageDeserializer(Deserializer):
    def __init__(self, schema: Schema, messages: _Messages, registry: SchemaRegistryClientConfig | None) -> None:
        self._given = (schema, messages, registry)
        self._messages = ProtobufDeserializer(messages.type, to_dict=False, schema_registry_client_config=registry)
        self._read = _make_reader([(each.name, each.dtype) for each in schema.fields])
        self._check = RowCheck(schema.fields, decoded=True).mapping

    def __reduce__(self) -> tuple[Any, ...]:
        return _MessageDeserializer, self._given

    def __call__(self, value: bytes, ctx: SerializationContext) -> dict[str, Any]:
        return self._make_row(self._messages(value, ctx))

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:
        read, row = self._messages.bind(topic, field), self._make_row
        return lambda value, headers: row(read(value, headers))

    def _make_row(self, message: Any) -> dict[str, Any]:
        try:
            return self._check(self._read(message))
        except SchemaMismatchError as error:
            raise SerializationError(str(error)) from None
        except _RowError as error:
            raise SerializationError(f"column {error}") from None
