"""Confluent's wire format: identifies the schema that a value was written with.

    prefix    0  id (4 bytes, big-endian)   [message indexes, only Protobuf]  payload
              1  guid (16 bytes)            [message indexes, only Protobuf]  payload
    header    the same first part as the value of the header `__key_schema_id` or `__value_schema_id`, and only the
              payload as the record's key or value

Each process requests each schema from the registry once, when the first record needs it, and caches the functions made
for it. Each further record costs one look-up in a dict.
"""

import contextlib
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from streamrt.errors import ArgumentTypeError, ConfigurationError, SchemaRegistryError, SerializationError
from streamrt.records import Headers
from streamrt.serializers.base import BoundDeserializer, BoundSerializer, MessageField, SerializationContext
from streamrt.serializers.registry.client import MAX_SCHEMA_ID, SchemaRegistry, open_registry
from streamrt.serializers.registry.config import SchemaRegistryClientConfig, SchemaRegistrySerializationConfig
from streamrt.serializers.registry.schema import (
    KEY_SCHEMA_ID_HEADER,
    VALUE_SCHEMA_ID_HEADER,
    RegisteredSchema,
    RegistrySchema,
    SchemaType,
)

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]
MakeEncode = Callable[[RegisteredSchema, SchemaRegistry], Encode]
MakeDecode = Callable[[RegisteredSchema, SchemaRegistry], Decode]
SchemaSource = RegistrySchema | Callable[[SchemaRegistry, SerializationContext], RegistrySchema]

_ID = struct.Struct(">bI")
_BY_ID, _BY_GUID = 0, 1
ID_BYTES, _GUID_BYTES = 5, 17
_PREFIX_BYTES = {_BY_ID: ID_BYTES, _BY_GUID: _GUID_BYTES}
_ASK_AGAIN_S = 30.0
_MAX_REMEMBERED = 1000

_PROTOBUF_ONLY = ("skip_known_types", "reference_subject_name_strategy", "use_deprecated_format")


class SchemaWriter:
    """Registry access of a serializer: finds the id of the schema and writes it to its location.

    Instances are picklable and contain only settings. `bind` sends no request: the first serialized record causes the
    request to the registry.

    Args:
        kind: format of the schemas.
        client_config: connection to the registry.
        config: use of the registry.

    Raises:
        ConfigurationError: if an option of Protobuf is set for another format, or an argument has the wrong type.
    """

    def __init__(
        self,
        kind: SchemaType,
        client_config: SchemaRegistryClientConfig,
        config: SchemaRegistrySerializationConfig | None = None,
    ) -> None:
        checked_configs(client_config, config)
        self.type = kind
        self.client_config = client_config
        self.config = config or SchemaRegistrySerializationConfig()
        if kind != "PROTOBUF":
            fields = SchemaRegistrySerializationConfig.model_fields
            wrong = [name for name in _PROTOBUF_ONLY if getattr(self.config, name) != fields[name].default]
            if wrong:
                raise ConfigurationError(f"{wrong[0]} is only for Protobuf: leave it out for {kind}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaWriter) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.type, self.client_config))

    @property
    def writes_headers(self) -> bool:
        """Whether the schema's id goes into a header; the bound function then needs a list of headers to append to."""
        return self.config.schema_id_location == "header"

    def bind(
        self,
        topic: str,
        field: MessageField,
        schema: SchemaSource | None,
        make: MakeEncode,
        record_name: str | None = None,
        suffix: bytes = b"",
    ) -> BoundSerializer:
        """Return the function that serializes one field of one topic.

        Args:
            topic: name of the topic.
            field: key or value.
            schema: the serializer's own schema, or a function that makes it and registers its references; None if
                the configuration chooses a schema of the registry.
            make: returns the function that encodes values with a schema. It is called once.
            record_name: name of the record's type, for subject name strategies.
            suffix: bytes after the schema's id, such as Protobuf's message indexes.
        """
        ctx = SerializationContext(topic, field)
        header = _header_name(field)
        in_header = self.writes_headers
        prefix: bytes = b""
        encode: Encode | None = None

        def serialize(value: Any, headers: Headers | None) -> bytes | None:
            nonlocal prefix, encode
            if value is None:
                return None
            if encode is None:
                with _no_records_fault():
                    registry = open_registry(self.client_config)
                    found = self._find_schema(registry, ctx, schema, record_name)
                    try:
                        ready = make(found, registry)
                    except SerializationError as error:
                        # The schema is the problem: no record could be written with it.
                        raise SchemaRegistryError(f"{found} cannot be used to write: {error}") from error
                    prefix = self._make_prefix(found) + suffix
                encode = ready
            if not in_header:
                return prefix + encode(value)
            if headers is None:
                raise SerializationError("the schema's id goes into a header, but the record has no list of headers")
            data = encode(value)
            headers[:] = [(name, old) for name, old in headers if name != header]
            headers.append((header, prefix))
            return data

        return serialize

    def _find_schema(
        self, registry: SchemaRegistry, ctx: SerializationContext, schema: SchemaSource | None, record_name: str | None
    ) -> RegisteredSchema:
        """Return the schema for writing."""
        config = self.config
        if config.use_schema_id is not None:
            try:
                found = registry.by_id(config.use_schema_id, "WRITE")
            except SerializationError as error:
                raise SchemaRegistryError(f"{error}: set another use_schema_id") from error
            return self._check_registered(found)
        try:
            subject = config.subject_name_strategy(ctx, record_name)
        except Exception as error:  # user code may raise anything
            raise SchemaRegistryError(
                f"the subject name strategy failed for the {ctx.field.value} of topic {ctx.topic!r}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(subject, str) or not subject:
            raise ConfigurationError(
                f"the subject name strategy returned {subject!r} for the {ctx.field.value} of topic {ctx.topic!r}"
                + ("; the schema has no name to use" if record_name is None else "")
            )
        if config.use_latest_version:
            return self._check_registered(registry.latest(subject))
        if schema is None:
            raise ConfigurationError("a serializer without a schema needs use_latest_version or use_schema_id")
        own = schema if isinstance(schema, RegistrySchema) else schema(registry, ctx)
        if config.auto_register_schemas:
            return registry.register(subject, own, self.type, config.normalize_schemas)
        return self._check_registered(registry.lookup(subject, own, self.type, config.normalize_schemas))

    def _check_registered(self, found: RegisteredSchema) -> RegisteredSchema:
        if found.type != self.type:
            raise SchemaRegistryError(f"{found} of the registry is of type {found.type}, but {self.type} is needed")
        _no_rules(found)
        return found

    def _make_prefix(self, found: RegisteredSchema) -> bytes:
        # Other clients write the global id into headers; some registries have none.
        if self.writes_headers and found.guid is not None:
            return bytes([_BY_GUID]) + found.guid.bytes
        if found.id is None:
            raise SchemaRegistryError(f"the schema registry {self.client_config.url} returned no id for the {found}")
        return _ID.pack(_BY_ID, found.id)


class SchemaReader:
    """Registry access of a deserializer: finds the schema that a value was written with.

    Instances are picklable and contain only settings.

    Args:
        kind: format of the schemas.
        client_config: connection to the registry.

    Raises:
        ConfigurationError: if an argument has the wrong type.
    """

    def __init__(self, kind: SchemaType, client_config: SchemaRegistryClientConfig) -> None:
        checked_configs(client_config, None)
        self.type = kind
        self.client_config = client_config

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaReader) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.type, self.client_config))

    def bind(self, topic: str, field: MessageField, make: MakeDecode) -> BoundDeserializer:
        """Return the function that deserializes one field of one topic.

        Args:
            topic: name of the topic.
            field: key or value.
            make: returns the function that decodes payloads written with a schema. It is called once for each schema;
                its `SerializationError` is raised again for each value of that schema. A payload of Protobuf
                begins with the message indexes.
        """
        header = _header_name(field)
        decoders: dict[bytes, Decode] = {}
        unknown: dict[bytes, tuple[float, str]] = {}
        joined = self.type == "PROTOBUF"

        def open_schema(key: bytes) -> Decode:
            decode = decoders.get(key)
            if decode is not None:
                return decode
            until, message = unknown.get(key, (0.0, ""))
            if until > time.monotonic():
                raise SerializationError(message)
            with _no_records_fault():
                registry = open_registry(self.client_config)
            try:
                found = self._fetch_schema(registry, key)
            except SerializationError as error:
                # Bad input must not cause a flood of requests, and the schema may be registered later.
                _remember_item(unknown, key, (time.monotonic() + _ASK_AGAIN_S, str(error)))
                raise
            _no_rules(found)
            try:
                if found.type != self.type:
                    raise SerializationError(f"{found} is of type {found.type}, but {self.type} is expected")
                with _no_records_fault():
                    decode = make(found, registry)
            except SerializationError as error:
                decode = _make_refusing(str(error))
            _remember_item(decoders, key, decode)
            return decode

        def deserialize(value: bytes, headers: Headers | None) -> Any:
            if headers is not None:
                for name, data in headers:
                    if name == header and data is not None:
                        raw = data.encode() if isinstance(data, str) else data
                        length = _PREFIX_BYTES.get(raw[0] if raw else -1, -1)
                        if len(raw) < length or length < 0 or (len(raw) > length and not joined):
                            raise SerializationError(f"the header {header} contains no schema id: {raw[:32]!r}")
                        return open_schema(raw[:length])(raw[length:] + value if joined else value)
            decode = decoders.get(value[:ID_BYTES])
            if decode is not None and len(value) >= ID_BYTES:
                return decode(value[ID_BYTES:])
            length = _PREFIX_BYTES.get(value[0] if value else -1, -1)
            if length < 0 or len(value) < length:
                raise SerializationError(_no_prefix(value))
            return open_schema(value[:length])(value[length:])

        return deserialize

    def _fetch_schema(self, registry: SchemaRegistry, key: bytes) -> RegisteredSchema:
        if key[0] == _BY_ID:
            schema_id = _ID.unpack(key)[1]
            if schema_id > MAX_SCHEMA_ID:
                # Registries answer to such numbers as if the address were wrong.
                raise SerializationError(f"{schema_id} is not a valid schema id")
            return registry.by_id(schema_id)
        return registry.by_guid(uuid.UUID(bytes=key[1:]))


def checked_configs(
    client: SchemaRegistryClientConfig | None, config: SchemaRegistrySerializationConfig | None
) -> None:
    """Refuse arguments of serializers that are not configurations, and a serialization config without a client config.

    Raises:
        ConfigurationError: if an argument is refused.
    """
    if client is not None and not isinstance(client, SchemaRegistryClientConfig):
        raise ArgumentTypeError(
            f"schema_registry_client_config is a {type(client).__name__}: give a SchemaRegistryClientConfig"
        )
    if config is not None and not isinstance(config, SchemaRegistrySerializationConfig):
        raise ArgumentTypeError(
            f"schema_registry_serialization_config is a {type(config).__name__}: give a "
            f"SchemaRegistrySerializationConfig"
        )
    if config is not None and client is None:
        raise ConfigurationError("schema_registry_serialization_config needs schema_registry_client_config")


@contextlib.contextmanager
def _no_records_fault() -> Iterator[None]:
    """Convert an error in the settings, which appears at first use, to one for which no record is skipped."""
    try:
        yield
    except ConfigurationError as error:
        raise SchemaRegistryError(str(error)) from error


def _header_name(field: MessageField) -> str:
    return KEY_SCHEMA_ID_HEADER if field is MessageField.KEY else VALUE_SCHEMA_ID_HEADER


def _no_prefix(value: bytes) -> str:
    if value and value[0] not in _PREFIX_BYTES:
        return (
            f"the first byte is {value[0]}, not the 0 of values written with a schema registry; "
            f"leave out schema_registry_client_config to read values without a schema id"
        )
    return f"{len(value)} bytes are too few for a schema id"


def _no_rules(found: RegisteredSchema) -> None:
    if found.rules:
        raise SchemaRegistryError(
            f"{found} has data contract rules ({', '.join(found.rules)}), which StreamRT does not run: disable them, "
            f"or read and write such records with another client"
        )


def _make_refusing(message: str) -> Decode:
    def refuse(payload: bytes) -> Any:
        raise SerializationError(message)

    return refuse


def _remember_item(cache: dict[bytes, Any], key: bytes, item: Any) -> None:
    if len(cache) >= _MAX_REMEMBERED:
        cache.clear()
    cache[key] = item
