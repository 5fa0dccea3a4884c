"""Avro with fastavro: single values without a container, with a schema known to both sides or a schema registry."""

import codecs
import functools
import json
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from streamrt.common.copies import deep_copy
from streamrt.errors import ConfigurationError, SerializationError
from streamrt.records import Headers
from streamrt.serializers.avro.compiled_schema import (
    AvroSchema,
    InvalidAvroSchemaError,
    check_value_depth,
    compile_schema,
    load_fastavro,
    load_schema,
)
from streamrt.serializers.avro.value_checks import MisfitValueError, value_check
from streamrt.serializers.base import (
    BatchDeserializer,
    BoundDeserializer,
    BoundFunctions,
    BoundSerializer,
    Deserializer,
    MessageField,
    SerializationContext,
    Serializer,
)
from streamrt.serializers.dicts import make_dicts
from streamrt.serializers.registry import (
    RegisteredSchema,
    RegistrySchema,
    SchemaReader,
    SchemaRegistry,
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
    SchemaWriter,
    checked_configs,
)
from streamrt.serializers.registry.framing import ID_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

    from streamrt.serializers.avro.column_reading import AvroColumns

_WITHOUT_VALUE = ("record contains more fields", "no value and no default for", "Field ", "the value is nested deeper")

AvroSchemaLike = dict[str, Any] | list[Any] | str | RegistrySchema
"""An Avro schema: a dict, a list, JSON, the name of a primitive type, or one with references to registered schemas."""


class AvroSerializer(Serializer):
    r"""Writes Avro: one value without a container file.

    Values are what [fastavro](https://fastavro.readthedocs.io/en/latest/writer.html) accepts: records are dicts; dates,
    times, decimals and UUIDs are Python's types if the schema has the logical type. The branch of a union is found from
    the value, or named by a tuple of the type's name and the value, or by the key `-type` in a dict. None becomes a
    tombstone.

    Args:
        schema: the schema; None only if the configuration takes the schema from a registry.
        strict: refuse records whose fields are not exactly those of the schema. Otherwise fields that the schema lacks
            are left out; missing fields without a default are always refused.
        strict_allow_default: the same, but a missing field may have a default.
        disable_tuple_notation: a tuple is an array and never names the type of its second item.
        schema_registry_client_config: connection to a schema registry. Values then begin with the schema's id.
        schema_registry_serialization_config: use of the registry.

    Raises:
        ConfigurationError: if the schema or an option cannot be used, or fastavro is not installed.

    Example:
        >>> schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
        >>> AvroSerializer(schema)({"id": 7}, SerializationContext("orders", MessageField.VALUE))
        b'\x0e'
    """

    def __init__(
        self,
        schema: AvroSchemaLike | None,
        strict: bool = False,
        strict_allow_default: bool = False,
        disable_tuple_notation: bool = False,
        schema_registry_client_config: SchemaRegistryClientConfig | None = None,
        schema_registry_serialization_config: SchemaRegistrySerializationConfig | None = None,
    ) -> None:
        checked_configs(schema_registry_client_config, schema_registry_serialization_config)
        self._options = {
            name: True
            for name, value in (
                ("strict", strict),
                ("strict_allow_default", strict_allow_default),
                ("disable_tuple_notation", disable_tuple_notation),
            )
            if value
        }
        self._calls = BoundFunctions[BoundSerializer]()
        self._writer: SchemaWriter | None = None
        if schema_registry_client_config is not None:
            self._writer = SchemaWriter("AVRO", schema_registry_client_config, schema_registry_serialization_config)
        if schema is None:
            config = schema_registry_serialization_config
            if config is None or not (config.use_latest_version or config.use_schema_id is not None):
                raise ConfigurationError(
                    "an AvroSerializer needs a schema, or a registry with use_latest_version or use_schema_id"
                )
        self._schema, self._references = _taken_apart(schema, registry=self._writer is not None)
        self._compiled: AvroSchema | None = None
        if schema is not None and not self._references:
            self._compiled = _compile_own(self._schema)

    @property
    def writes_headers(self) -> bool:  # noqa: D102
        return self._writer is not None and self._writer.writes_headers

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:  # noqa: D102
        data: bytes | None = self._calls.of(self, AvroSerializer.bind, ctx)(value, ctx.headers)
        return data

    def __getstate__(self) -> dict[str, Any]:
        # Compiled schemas contain functions; they are compiled again in the other process.
        return {**self.__dict__, "_compiled": None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSerializer) and self._schema_settings() == other._schema_settings()

    def __hash__(self) -> int:
        return hash(AvroSerializer)

    def _schema_settings(self) -> tuple[Any, ...]:
        return self._schema, self._references, self._options, self._writer

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:  # noqa: D102
        own = self._own_schema()
        if self._writer is None:
            if own is None:
                raise TypeError("a serializer without a registry has its own schema")
            return _make_encoder(own, self._options)
        schema = None
        if self._schema is not None:
            schema = RegistrySchema(json.dumps(self._schema), self._references)

        def make(found: RegisteredSchema, registry: SchemaRegistry) -> Callable[[Any], bytes]:
            compiled = own
            if compiled is None or found.schema is not schema:
                compiled = compile_registered(found, registry)
            encode: Any = _raw_bytes if compiled.is_bytes else _make_encoder(compiled, self._options)
            return lambda value: encode(value, None)

        return self._writer.bind(topic, field, schema, make, _record_name(own, self._schema))

    def _own_schema(self) -> AvroSchema | None:
        if self._compiled is None and self._schema is not None and not self._references:
            self._compiled = _compile_own(self._schema)
        return self._compiled


class AvroDeserializer(Deserializer):
    r"""Reads Avro: one value without a container file.

    Args:
        schema: the schema that values were written with. A registry knows that one; with a registry, this is the schema
            to read with, like `reader_schema`.
        reader_schema: the schema to read with, if it is another one: fields are matched by name, missing fields
            get their defaults, and types are widened as in
            [the specification](https://avro.apache.org/docs/1.12.0/specification/#schema-resolution).
        return_record_name: a record in a union becomes a tuple of its type's name and the record.
        return_record_name_override: the same, but only if the union has several record types.
        return_named_type: the same, also for enums and fixed types; the two options above are then ignored.
        return_named_type_override: the same, but only if the union has several named types.
        handle_unicode_errors: error handling for strings that are not UTF-8, as for `bytes.decode`.
        schema_registry_client_config: connection to a schema registry. Values then begin with the schema's id.

    Raises:
        ConfigurationError: if a schema or an option cannot be used, or fastavro is not installed.

    Example:
        >>> schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
        >>> AvroDeserializer(schema)(b"\x0e", SerializationContext("orders", MessageField.VALUE))
        {'id': 7}
    """

    def __init__(
        self,
        schema: AvroSchemaLike | None = None,
        reader_schema: AvroSchemaLike | None = None,
        return_record_name: bool = False,
        return_record_name_override: bool = False,
        return_named_type: bool = False,
        return_named_type_override: bool = False,
        handle_unicode_errors: str = "strict",
        schema_registry_client_config: SchemaRegistryClientConfig | None = None,
    ) -> None:
        checked_configs(schema_registry_client_config, None)
        try:
            codecs.lookup_error(handle_unicode_errors)
        except (LookupError, TypeError):
            raise ConfigurationError(
                f"handle_unicode_errors is {handle_unicode_errors!r}: give a handler such as 'strict' or 'replace'"
            ) from None
        options = {
            "return_record_name": return_record_name,
            "return_record_name_override": return_record_name_override,
            "return_named_type": return_named_type,
            "return_named_type_override": return_named_type_override,
        }
        self._options: dict[str, Any] = {name: True for name, value in options.items() if value}
        if handle_unicode_errors != "strict":
            self._options["handle_unicode_errors"] = handle_unicode_errors
        self._calls = BoundFunctions[BoundDeserializer]()
        self._reader: SchemaReader | None = None
        if schema_registry_client_config is not None:
            if schema is not None and reader_schema is not None:
                raise ConfigurationError(
                    "with a schema registry, give either schema or reader_schema: the registry knows the schema that "
                    "values were written with"
                )
            schema, reader_schema = None, schema if reader_schema is None else reader_schema
            self._reader = SchemaReader("AVRO", schema_registry_client_config)
        elif schema is None:
            raise ConfigurationError("an AvroDeserializer needs a schema or schema_registry_client_config")
        registry = self._reader is not None
        self._written, _ = _taken_apart(schema, registry=False)
        self._read, self._read_references = _taken_apart(reader_schema, registry=registry)
        self._writer_schema = None if self._written is None else _compile_own(self._written)
        self._reader_schema: AvroSchema | None = None
        if self._read is not None and not self._read_references:
            self._reader_schema = _compile_own(self._read)

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:  # noqa: D102
        return self._calls.of(self, AvroDeserializer.bind, ctx)(value, ctx.headers)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer_schema": None, "_reader_schema": None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroDeserializer) and self._schema_settings() == other._schema_settings()

    def __hash__(self) -> int:
        return hash(AvroDeserializer)

    def _schema_settings(self) -> tuple[Any, ...]:
        return self._written, self._read, self._read_references, self._options, self._reader

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:  # noqa: D102
        if self._writer_schema is None and self._written is not None:
            self._writer_schema = _compile_own(self._written)
        if self._reader_schema is None and self._read is not None and not self._read_references:
            self._reader_schema = _compile_own(self._read)
        own, reader = self._writer_schema, self._reader_schema
        if self._reader is None:
            if own is None:
                raise TypeError("a deserializer without a registry has its own schema")
            return _make_decoder(own, reader, self._options)

        def make(found: RegisteredSchema, registry: SchemaRegistry) -> Callable[[bytes], Any]:
            nonlocal reader
            if reader is None and self._read is not None:
                reader = _compile_text(RegistrySchema(json.dumps(self._read), self._read_references), registry)
            compiled = compile_registered(found, registry)
            return _same_bytes if compiled.is_bytes else _make_decoder(compiled, reader, self._options)

        return self._reader.bind(topic, field, make)

    def bind_columns(self, topic: str, field: MessageField) -> "Callable[[bytes], AvroColumns] | None":
        """Return the function that takes a value's prefix, which is empty without a registry, and returns what reads columns.

        It raises `NotVectorizableError` for values that are not records. None if fields differ from those of the writer.
        """
        if self._read is not None or self._options:
            return None
        if self._reader is None:
            self.bind(topic, field)
            own = self._writer_schema
            return None if own is None or not own.has_columns else _make_columns_of(own)
        bound = self._reader.bind(
            topic, field, lambda found, registry: _make_columns_of(compile_registered(found, registry))
        )
        return lambda prefix: bound(prefix, None)

    def bind_arrays(self, topic: str, field: MessageField) -> "Callable[[Sequence[bytes]], dict[str, pa.Array]] | None":
        """Return the function that reads all fields of values of one writer; its errors are `UNSURE`. None as above."""
        columns_of = self.bind_columns(topic, field)
        if columns_of is None:
            return None
        if self._reader is None:
            return lambda values: columns_of(b"").read(values, 0)

        def read(values: Sequence[bytes]) -> "dict[str, pa.Array]":
            prefix, *others = {value[:ID_BYTES] for value in values}
            if others or prefix[:1] != b"\0":
                raise SerializationError("values have several schemas, or none")
            return columns_of(prefix).read(values, ID_BYTES)

        return read

    def bind_batch(self, topic: str, field: MessageField) -> BatchDeserializer | None:  # noqa: D102
        read = self.bind_arrays(topic, field)
        if read is None:
            return None

        def deserialize(values: Sequence[bytes]) -> Iterable[dict[str, Any]] | None:
            from streamrt.serializers.avro.column_reading import UNSURE, column_objects

            try:
                arrays = read(values)
                return make_dicts(tuple(arrays), [column_objects(array) for array in arrays.values()])
            except UNSURE:
                return None

        return deserialize


def _taken_apart(schema: AvroSchemaLike | None, registry: bool) -> tuple[Any, Any]:
    """Return a schema of the user as plain objects, and its references."""
    if schema is None:
        return None, ()
    references: Any = ()
    if isinstance(schema, RegistrySchema):
        references, schema = schema.references, schema.text
        if references and not registry:
            raise ConfigurationError("a schema with references needs schema_registry_client_config")
    try:
        return load_schema(schema), references
    except InvalidAvroSchemaError as error:
        raise ConfigurationError(f"the Avro schema cannot be used: {error}") from error


def _compile_own(schema: Any) -> AvroSchema:
    try:
        compiled = compile_schema(schema)
        json.dumps(schema)
        if compiled.unfit_defaults:
            raise InvalidAvroSchemaError(f"the default of {', '.join(compiled.unfit_defaults)} does not fit its type")
    except (InvalidAvroSchemaError, TypeError, ValueError) as error:
        raise ConfigurationError(f"the Avro schema cannot be used: {error}") from error
    return compiled


def compile_registered(found: RegisteredSchema, registry: SchemaRegistry) -> AvroSchema:
    """Return a schema of a registry, compiled.

    Raises:
        SerializationError: if values cannot be read with it.
    """
    try:
        return _compile_text(found.schema, registry)
    except SerializationError as error:
        raise SerializationError(f"{found} cannot be used: {error}") from error


def _compile_text(schema: RegistrySchema, registry: SchemaRegistry) -> AvroSchema:
    others = registry.references(schema).values() if schema.references else ()
    try:
        return compile_schema(load_schema(schema.text), [load_schema(other.schema.text) for other in others])
    except InvalidAvroSchemaError as error:
        raise SerializationError(str(error)) from error


def _record_name(own: AvroSchema | None, schema: Any) -> str | None:
    """Return the full name of the type, for subject name strategies."""
    if own is not None:
        return own.name
    if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
        return None
    name, namespace = schema["name"], schema.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else str(name)


def _make_encoder(schema: AvroSchema, options: dict[str, Any]) -> BoundSerializer:
    parsed, recursive = schema.parsed, schema.recursive
    write: Callable[..., None] = load_fastavro().schemaless_writer
    # fastavro says more about missing fields if there may be none.
    strict = bool(options.get("strict") or options.get("strict_allow_default"))
    tuples = not options.get("disable_tuple_notation")
    fits = value_check(parsed, schema.named, tuples=tuples, missing=not strict)

    def encode(value: Any, headers: Headers | None) -> bytes | None:
        if value is None:
            return None
        out = BytesIO()
        try:
            if recursive:
                check_value_depth(value)
            fits(value)
            write(out, parsed, value, **options)
        except Exception as error:  # the value's methods and fastavro may raise anything
            raise SerializationError(
                f"the value does not fit the Avro schema{_of(schema)}: {_describe_misfit(error)}"
            ) from error
        return out.getvalue()

    return encode


def _make_decoder(writer: AvroSchema, reader: AvroSchema | None, options: dict[str, Any]) -> Callable[..., Any]:
    parsed, check = writer.parsed, writer.check
    target = None if reader is None else reader.parsed
    shares_defaults = reader is not None and reader.shares_defaults
    read: Callable[..., Any] = load_fastavro().schemaless_reader

    def decode(data: bytes, headers: Headers | None = None) -> Any:
        source = BytesIO(data)
        try:
            if check is not None:
                check(data)
            value = read(source, parsed, target, **options)
        except Exception as error:  # fastavro may raise anything
            raise SerializationError(
                f"the bytes do not fit the Avro schema{_of(writer)}: {_describe_reason(error)}"
            ) from error
        if source.tell() != len(data):
            raise SerializationError(
                f"the bytes do not fit the Avro schema{_of(writer)}: {len(data) - source.tell()} remain after the value"
            )
        return deep_copy(value) if shares_defaults else value

    return decode


def _make_columns_of(compiled: AvroSchema) -> "Callable[[bytes], AvroColumns]":
    """Return the function that returns what reads columns of a schema, whatever the bytes are."""

    @functools.cache
    def columns_of(data: bytes) -> "AvroColumns":
        # NumPy and Arrow take time and memory, and many applications never have many records at once.
        from streamrt.serializers.avro.column_reading import AvroColumns, NotVectorizableError

        if not compiled.has_columns:
            raise NotVectorizableError
        return AvroColumns(compiled.parsed, compiled.named)

    return columns_of


def _raw_bytes(value: Any, headers: Headers | None) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise SerializationError(f"the Avro schema needs bytes, not a {type(value).__name__}")
    return bytes(value)


def _same_bytes(data: bytes) -> bytes:
    return data


def _of(schema: AvroSchema) -> str:
    return f" of {schema.name}" if schema.name in schema.named else ""


def _describe_misfit(error: Exception) -> str:
    """Return why a value cannot be written; messages of fastavro may contain the value."""
    text = str(error)
    if isinstance(error, MisfitValueError) or text.startswith(_WITHOUT_VALUE):
        return text
    return type(error).__name__


def _describe_reason(error: Exception) -> str:
    # fastavro raises one of these two, depending on where the bytes end.
    if isinstance(error, EOFError) or str(error) == "string index out of range":
        return "they end too early"
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else f"{text[:300]}..."
    return f"{type(error).__name__}: {text}" if isinstance(error, LookupError) or not text else text
