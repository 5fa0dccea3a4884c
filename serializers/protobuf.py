"""Protobuf: messages of generated classes, or of classes made from descriptors at run time, as bytes or dicts."""

import base64
import functools
import importlib
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from streamrt.common.texts import one_line
from streamrt.common.varint import varint
from streamrt.errors import ArgumentTypeError, ConfigurationError, SchemaRegistryError, SerializationError
from streamrt.extras import install_command
from streamrt.records import Headers
from streamrt.serializers.base import (
    BoundDeserializer,
    BoundFunctions,
    BoundSerializer,
    Deserializer,
    MessageField,
    SerializationContext,
    Serializer,
)
from streamrt.serializers.proto_text import NoTextError, proto_text
from streamrt.serializers.proto_values import proto_dict

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from streamrt.serializers.registry import (
        RegistrySchema,
        SchemaRegistry,
        SchemaRegistryClientConfig,
        SchemaRegistrySerializationConfig,
    )

_KNOWN_TYPES = "google/protobuf/"
_MAX_INDEXES = 100
_FAILED_FIELDS = re.compile(r"Failed to parse (\S+) field")
_WITHOUT_VALUE = ("Message ", "null is not allowed", "Can not find message")


class ProtobufSerializer(Serializer):
    r"""Writes Protobuf: messages of one type, or dicts in Protobuf's JSON mapping.

    A dict may name fields as the .proto file does or in lowerCamelCase. Bytes are bytes or base64 text, 64-bit integers are
    numbers or text, enums are names or numbers, timestamps are text. Converting a dict takes far longer than writing a
    message. None becomes a tombstone.

    Args:
        msg_type: class of the messages. Tasks import a generated class by name; a class that was made from
            descriptors at run time is pickled with its descriptors.
        deterministic: whether the entries of maps are sorted, so that equal messages give equal bytes.
        ignore_unknown_fields: whether unknown fields of a dict are dropped instead of refused.
        schema_registry_client_config: connection to a schema registry. The .proto file and its imports are registered
            there, and each value begins with the id of the schema.
        schema_registry_serialization_config: use of the registry.

    Raises:
        ConfigurationError: if `msg_type` is not a message class, a package is missing, or the arguments contradict each
            other.

    Example:
        >>> from google.protobuf.wrappers_pb2 import StringValue
        >>> from streamrt.serializers import MessageField, SerializationContext
        >>> ProtobufSerializer(StringValue)(StringValue(value="a"), SerializationContext("t", MessageField.VALUE))
        b'\n\x01a'
    """

    def __init__(
        self,
        msg_type: "type[Message]",
        deterministic: bool = False,
        ignore_unknown_fields: bool = False,
        schema_registry_client_config: "SchemaRegistryClientConfig | None" = None,
        schema_registry_serialization_config: "SchemaRegistrySerializationConfig | None" = None,
    ) -> None:
        self._class = _MessageClass(msg_type)
        self._deterministic = deterministic
        self._ignore_unknown_fields = ignore_unknown_fields
        self._calls = BoundFunctions[BoundSerializer]()
        self._writer = None
        if schema_registry_client_config is not None:
            from streamrt.serializers.registry import SchemaWriter

            self._writer = SchemaWriter("PROTOBUF", schema_registry_client_config, schema_registry_serialization_config)
        elif schema_registry_serialization_config is not None:
            raise ConfigurationError("schema_registry_serialization_config needs schema_registry_client_config")

    @property
    def writes_headers(self) -> bool:  # noqa: D102
        return self._writer is not None and self._writer.writes_headers

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:  # noqa: D102
        data: bytes | None = self._calls.of(self, ProtobufSerializer.bind, ctx)(value, ctx.headers)
        return data

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:  # noqa: D102
        encode = self._make_encoder()
        if self._writer is not None:
            descriptor = self._class.type.DESCRIPTOR
            suffix = _index_bytes(_message_indexes(descriptor), self._writer.config.use_deprecated_format)
            return self._writer.bind(
                topic,
                field,
                functools.partial(_schema_with_imports, self._writer.config, descriptor.file),
                lambda registered, registry: encode,
                record_name=descriptor.full_name,
                suffix=suffix,
            )

        def serialize(value: Any, headers: Headers | None) -> bytes | None:
            return None if value is None else encode(value)

        return serialize

    def is_registrable(self, topic: str, field: MessageField) -> bool:
        """Return whether the registry would take the schema after those of its subject; True without a registry.

        It registers nothing: imports that are not registered yet are left out, which registries have themselves if they are
        Google's.

        Args:
            topic: name of the topic.
            field: key or value.

        Raises:
            SchemaRegistryError: if the registry refuses the request, or does not answer.
        """
        if self._writer is None:
            return True
        from streamrt.serializers.registry import RegistrySchema, open_registry

        config = self._writer.config.model_copy(update={"auto_register_schemas": False})
        registry, ctx = open_registry(self._writer.client_config), SerializationContext(topic, field)
        descriptor = self._class.type.DESCRIPTOR
        try:
            schema = _schema_with_imports(config, descriptor.file, registry, ctx)
        except SchemaRegistryError:
            schema = RegistrySchema(_schema_text(descriptor.file))
        subject = config.subject_name_strategy(ctx, descriptor.full_name)
        return subject is None or registry.accepts(subject, schema, "PROTOBUF")

    def _make_encoder(self) -> Callable[[Any], bytes]:
        from google.protobuf.json_format import ParseDict
        from google.protobuf.message import Message

        kind, deterministic, ignore = self._class.type, self._deterministic, self._ignore_unknown_fields
        name = kind.DESCRIPTOR.full_name
        pool: Any = kind.DESCRIPTOR.file.pool
        # The JSON forms of Google's well-known types are text, numbers or lists.
        from_json: Any = object if name.startswith("google.protobuf.") else Mapping

        def encode(value: Any) -> bytes:
            try:
                if isinstance(value, Message):
                    message = _convert_message(value, kind)
                elif isinstance(value, from_json):
                    fitting = proto_dict(value, kind.DESCRIPTOR)
                    message = ParseDict(fitting, kind(), ignore_unknown_fields=ignore, descriptor_pool=pool)
                else:
                    raise SerializationError(f"the protobuf serializer of {name} got a {type(value).__name__}")
                data: bytes = message.SerializeToString(deterministic=deterministic)
            except SerializationError as error:
                raise SerializationError(f"the value is not a {name}: {error}") from error
            except Exception as error:
                raise SerializationError(f"the value is not a {name}: {_describe_misfit(error)}") from error
            return data

        return encode


def _describe_misfit(error: Exception) -> str:
    """Return why a value does not fit; the messages of the parser contain values."""
    path = _FAILED_FIELDS.findall(str(error))
    if path:
        return f"field {'.'.join(path)!r} does not fit its type"
    text = one_line(error)
    return text if text.startswith(_WITHOUT_VALUE) else type(error).__name__


class ProtobufDeserializer(Deserializer):
    """Reads Protobuf into dicts in Protobuf's JSON mapping, or into messages.

    In dicts, fields without a value have their default, unset sub-messages are absent, 64-bit integers and bytes (in
    base64) are text, timestamps are text in RFC 3339. Making a dict takes far longer than reading the message.

    Args:
        msg_type: class of the messages, as for `ProtobufSerializer`.
        use_integers_for_enums: whether enums are numbers instead of names.
        preserving_proto_field_name: whether fields are named as in the .proto file instead of in lowerCamelCase.
        to_dict: whether to return dicts instead of messages.
        schema_registry_client_config: connection to a schema registry. Each value begins with the id of its writer's
            schema. It is still read as a `msg_type`, within Protobuf's rules of evolution.
        schema_registry_serialization_config: only its `use_deprecated_format` is used, for values written by
            confluent-kafka older than 1.8.

    Raises:
        ConfigurationError: if `msg_type` is not a message class, a package is missing, or the arguments contradict each
            other.

    Example:
        >>> from google.protobuf.struct_pb2 import Struct
        >>> from streamrt.serializers import MessageField, SerializationContext
        >>> message = Struct()
        >>> message["celsius"] = 31.5
        >>> ctx = SerializationContext("t", MessageField.VALUE)
        >>> ProtobufDeserializer(Struct)(message.SerializeToString(), ctx)
        {'celsius': 31.5}
    """

    def __init__(
        self,
        msg_type: "type[Message]",
        use_integers_for_enums: bool = False,
        preserving_proto_field_name: bool = False,
        to_dict: bool = True,
        schema_registry_client_config: "SchemaRegistryClientConfig | None" = None,
        schema_registry_serialization_config: "SchemaRegistrySerializationConfig | None" = None,
    ) -> None:
        self._class = _MessageClass(msg_type)
        self._use_integers_for_enums = use_integers_for_enums
        self._preserving_proto_field_name = preserving_proto_field_name
        self._to_dict = to_dict
        self._calls = BoundFunctions[BoundDeserializer]()
        self._reader = None
        self._deprecated = False
        if schema_registry_client_config is not None:
            from streamrt.serializers.registry import SchemaReader, checked_configs

            checked_configs(schema_registry_client_config, schema_registry_serialization_config)
            self._reader = SchemaReader("PROTOBUF", schema_registry_client_config)
            if schema_registry_serialization_config is not None:
                self._deprecated = _reading_format(schema_registry_serialization_config)
        elif schema_registry_serialization_config is not None:
            raise ConfigurationError("schema_registry_serialization_config needs schema_registry_client_config")

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:  # noqa: D102
        return self._calls.of(self, ProtobufDeserializer.bind, ctx)(value, ctx.headers)

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:  # noqa: D102
        decode = self._make_decoder()
        if self._reader is not None:
            deprecated = self._deprecated

            def decode_behind_indexes(data: bytes) -> Any:
                return decode(data[_end_of_indexes(data, deprecated) :])

            return self._reader.bind(topic, field, lambda registered, registry: decode_behind_indexes)

        def deserialize(value: bytes, headers: Headers | None) -> Any:
            return decode(value)

        return deserialize

    def _make_decoder(self) -> Callable[[bytes], Any]:
        from google.protobuf.json_format import MessageToDict

        descriptor = self._class.type.DESCRIPTOR
        parse = self._class.type.FromString
        to_dict = functools.partial(
            MessageToDict,
            always_print_fields_with_no_presence=True,
            preserving_proto_field_name=self._preserving_proto_field_name,
            use_integers_for_enums=self._use_integers_for_enums,
            descriptor_pool=cast("Any", descriptor.file.pool),
        )
        convert: Callable[[Any], Any] | None = to_dict if self._to_dict else None

        def decode(data: bytes) -> Any:
            try:
                message = parse(data)
                return message if convert is None else convert(message)
            except Exception as error:
                raise SerializationError(f"the bytes are not a {descriptor.full_name}: {one_line(error)}") from error

        return decode


class _MessageClass:
    """A message class that can be pickled, whether or not a module contains it."""

    def __init__(self, msg_type: Any) -> None:
        try:
            from google.protobuf.message import Message
        except ImportError as error:
            raise ConfigurationError(
                f"Protobuf needs packages that are not installed ({error}): run {install_command('protobuf')}"
            ) from error
        if not isinstance(msg_type, type) or not issubclass(msg_type, Message) or msg_type is Message:
            raise ArgumentTypeError(f"msg_type must be a class of Protobuf messages, not {msg_type!r}")
        self.type: type[Message] = msg_type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _MessageClass) and self.type is other.type

    def __hash__(self) -> int:
        return hash(self.type)

    def __reduce__(self) -> tuple[Any, ...]:
        module, name = self.type.__module__, self.type.__qualname__
        if _find_loaded(module, name) is self.type:
            return _from_module, (module, name)
        return _from_files, (_collect_files(self.type.DESCRIPTOR.file), self.type.DESCRIPTOR.full_name)


def _find_loaded(module: str | None, name: str) -> Any:
    """Return the object of a name in a loaded module, or None."""
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _from_module(module: str, name: str) -> _MessageClass:
    importlib.import_module(module)
    return _MessageClass(_find_loaded(module, name))


@functools.lru_cache(maxsize=100)
def _from_files(files: tuple[bytes, ...], name: str) -> _MessageClass:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    # A separate pool: the default pool may have another version of the same file.
    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    return _MessageClass(GetMessageClass(pool.FindMessageTypeByName(name)))


def _collect_files(file: Any) -> tuple[bytes, ...]:
    """Return the serialized descriptors of a file and its imports; imported files come first."""
    found: dict[str, bytes] = {}

    def visit(one: Any) -> None:
        if one.name not in found:
            for imported in one.dependencies:
                visit(imported)
            found[one.name] = one.serialized_pb

    visit(file)
    return tuple(found.values())


def _convert_message(message: "Message", kind: "type[Message]") -> "Message":
    if isinstance(message, kind):
        return message
    if message.DESCRIPTOR.full_name != kind.DESCRIPTOR.full_name:
        raise SerializationError(
            f"the protobuf serializer of {kind.DESCRIPTOR.full_name} got a {message.DESCRIPTOR.full_name}"
        )
    # A class made from descriptors differs between processes.
    return kind.FromString(message.SerializeToString())


# -- The registry ----------------------------------------------------------------------------------------------------


def _reading_format(config: "SchemaRegistrySerializationConfig") -> bool:
    """Return whether indexes have the deprecated form; refuse settings that deserializers do not use."""
    wrong = [name for name in config.model_fields_set if name != "use_deprecated_format"]
    if wrong:
        raise ConfigurationError(f"{sorted(wrong)[0]} is only for serializers: leave it out for a ProtobufDeserializer")
    return config.use_deprecated_format


def _schema_with_imports(
    config: "SchemaRegistrySerializationConfig", file: Any, registry: "SchemaRegistry", ctx: SerializationContext
) -> "RegistrySchema":
    """Return the schema of a file, after its imports are registered or looked up."""
    from streamrt.serializers.registry import RegistrySchema, SchemaReference

    done: dict[str, SchemaReference] = {}

    def schema(one: Any) -> RegistrySchema:
        references = [reference(imported) for imported in one.dependencies if not skipped(imported)]
        return RegistrySchema(_schema_text(one), tuple(references))

    def skipped(one: Any) -> bool:
        return config.skip_known_types and str(one.name).startswith(_KNOWN_TYPES)

    def reference(one: Any) -> SchemaReference:
        if one.name not in done:
            subject = config.reference_subject_name_strategy(ctx, SchemaReference(one.name, "", 0))
            if not isinstance(subject, str) or not subject:
                raise ConfigurationError(
                    f"the reference subject name strategy returned {subject!r} for {one.name}, which "
                    f"{file.name} imports; it must return the name of a subject"
                )
            own = schema(one)
            version = None
            if config.auto_register_schemas:
                version = registry.register(subject, own, "PROTOBUF", config.normalize_schemas).version
            if version is None:
                version = registry.lookup(subject, own, "PROTOBUF", config.normalize_schemas).version
            if version is None:
                raise ConfigurationError(f"the schema registry returned no version of {one.name} (subject {subject!r})")
            done[one.name] = SchemaReference(one.name, subject, version)
        return done[one.name]

    return schema(file)


def _schema_text(file: Any) -> str:
    """Return a file for the registry: as text, which all registries accept, or else as its descriptor."""
    try:
        return proto_text(file.serialized_pb)
    except NoTextError:
        return base64.b64encode(file.serialized_pb).decode()


def _message_indexes(descriptor: Any) -> list[int]:
    """Return the path of a message type in its file: the index in each containing type, from the outermost."""
    path = []
    while descriptor.containing_type is not None:
        path.append(next(i for i, t in enumerate(descriptor.containing_type.nested_types) if t == descriptor))
        descriptor = descriptor.containing_type
    # Not by position in `message_types_by_name`: the order is that of the serialized file.
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto.FromString(descriptor.file.serialized_pb)
    path.append(next(i for i, t in enumerate(file.message_type) if t.name == descriptor.name))
    return path[::-1]


def _index_bytes(indexes: list[int], deprecated: bool) -> bytes:
    if indexes == [0]:
        return b"\0"
    return b"".join(varint(number if deprecated else number << 1) for number in (len(indexes), *indexes))


def _end_of_indexes(data: bytes, deprecated: bool) -> int:
    """Return the position of the message after the message indexes."""
    if data[:1] == b"\0":
        return 1
    count, end = _read_varint(data, 0, deprecated)
    if not 0 < count <= _MAX_INDEXES:
        raise SerializationError(f"the value has {count} message indexes; 1 to {_MAX_INDEXES} are possible")
    for _ in range(count):
        index, end = _read_varint(data, end, deprecated)
        if index < 0:
            raise SerializationError(f"the value has the message index {index}, which is not possible")
    return end


def _read_varint(data: bytes, start: int, deprecated: bool) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(data[start : start + 10]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number if deprecated else (number >> 1) ^ -(number & 1), start + index + 1
    raise SerializationError("the message indexes of the value are cut short or too long")
