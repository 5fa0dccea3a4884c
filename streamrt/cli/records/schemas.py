"""Formats of a schema registry: their options, and how records are shown."""

import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from streamrt.cli.broker import REGISTRY_PREFIX, read_properties
from streamrt.cli.programs.loading import load_message_class
from streamrt.cli.records.record_values import ReadFormat, WriteFormat, decode
from streamrt.errors import ConfigurationError

if TYPE_CHECKING:
    from streamrt.serializers import Deserializer, MessageField
    from streamrt.serializers.registry import SchemaRegistryClientConfig

__all__ = [
    "Decoder",
    "MessageOption",
    "RegistryOption",
    "decoders",
    "needed_message",
    "needed_registry",
    "registry_for",
    "registry_of",
]

RegistryOption = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        help="Schema registry; by default schema.registry.url of the file of --config.",
    ),
]
MessageOption = Annotated[
    str | None,
    typer.Option(
        "--message",
        metavar="MODULE:CLASS",
        help="Class of Protobuf messages, in a module that protoc has generated.",
    ),
]

Decoder = Callable[[bytes, Sequence[tuple[str, bytes | None]]], tuple[str, str]]
"""Function of bytes and the headers of their record that returns a text and its format."""


def decoders(
    topic: str,
    value_format: ReadFormat,
    key_format: ReadFormat,
    url: str | None,
    config: Path | None,
    message: str | None = None,
) -> tuple[Decoder, Decoder]:
    """Return the functions that show values and keys.

    Args:
        topic: the topic that is read.
        value_format: format of the values.
        key_format: format of the keys.
        url: the option `--registry`.
        config: the option `--config`.
        message: the option `--message`.

    Raises:
        ConfigurationError: if a schema registry or a class of messages is needed and missing, or options are invalid.
    """
    from streamrt.serializers import MessageField

    registry = registry_for((value_format, key_format), url, config, message)

    def decoder(read_format: ReadFormat, field: MessageField) -> Decoder:
        if read_format is ReadFormat.protobuf:
            return _protobuf_decoder(message, registry, topic, field)
        if read_format.needs_schema:
            return _schema_decoder(read_format, registry, topic, field)
        return lambda data, _: decode(data, read_format)

    return decoder(value_format, MessageField.VALUE), decoder(key_format, MessageField.KEY)


def registry_for(
    formats: Sequence[ReadFormat | WriteFormat], url: str | None, config: Path | None, message: str | None
) -> "SchemaRegistryClientConfig | None":
    """Return the connection to a schema registry, or None if no format needs one, or the options describe none.

    Args:
        formats: the formats of values and keys.
        url: the option `--registry`.
        config: the option `--config`.
        message: the option `--message`.

    Raises:
        BadParameter: if an option has no effect with these formats.
        ConfigurationError: if the options are invalid.
    """
    needed = any(each.needs_schema for each in formats)
    if url is not None and not needed:
        raise typer.BadParameter("it is for the formats avro, json-schema and protobuf alone", param_hint="--registry")
    if message is not None and all(each.value != "protobuf" for each in formats):
        raise typer.BadParameter("it is for the format protobuf alone", param_hint="--message")
    return registry_of(url, config) if needed else None


def registry_of(url: str | None, config: Path | None) -> "SchemaRegistryClientConfig | None":
    """Return the connection to a schema registry that the options describe, or None if they describe none.

    Args:
        url: the option `--registry`, which overrides the address in the file.
        config: the option `--config`: a file with `schema.registry.url`, `schema.registry.basic.auth.user.info` and so
            on.

    Raises:
        ConfigurationError: if the options are invalid; the message never shows the value of one.
    """
    found = {} if config is None else read_properties(config)
    options = {
        name.removeprefix(REGISTRY_PREFIX).replace(".", "_"): value
        for name, value in found.items()
        if name.startswith(REGISTRY_PREFIX)
    }
    if url is not None:
        if "@" in urllib.parse.urlsplit(url).netloc:
            raise typer.BadParameter(
                f"put the login into the file of --config, as {REGISTRY_PREFIX}basic.auth.user.info=user:password: "
                "other users of this machine can see the arguments of a process",
                param_hint="--registry",
            )
        options["url"] = url
    if not options:
        return None
    from streamrt.serializers.registry import SchemaRegistryClientConfig

    return SchemaRegistryClientConfig(**options)


def needed_registry(name: str, registry: "SchemaRegistryClientConfig | None") -> "SchemaRegistryClientConfig":
    """Return the connection to a registry, which a format needs.

    Args:
        name: the format.
        registry: the connection, if there is one.

    Raises:
        ConfigurationError: if there is none.
    """
    if registry is None:
        raise ConfigurationError(
            f"the format {name} needs a schema registry: pass --registry URL, or put {REGISTRY_PREFIX}url into "
            "the file of --config"
        )
    return registry


def needed_message(message: str | None) -> str:
    """Return the name of a class of messages, which the format protobuf needs.

    Args:
        message: the option `--message`.

    Raises:
        ConfigurationError: if it is missing.
    """
    if message is None:
        raise ConfigurationError(
            "the format protobuf needs the class of the messages, which no registry has: generate it from the .proto file "
            "with protoc, and pass it as --message orders_pb2:Order"
        )
    return message


def _schema_decoder(
    read_format: ReadFormat, registry: "SchemaRegistryClientConfig | None", topic: str, field: "MessageField"
) -> Decoder:
    """Return a function that shows bytes with the schema of their writer, as JSON.

    Args:
        read_format: "avro" or "json-schema".
        registry: connection to the registry.
        topic: the topic that is read.
        field: key or value.

    Raises:
        ConfigurationError: if the registry or a package is missing.
    """
    registry = needed_registry(read_format.value, registry)
    from streamrt.serializers import AvroDeserializer, JSONDeserializer, SerializationContext
    from streamrt.serializers.avro.readable_json import shown_json

    deserializer: Deserializer
    if read_format is ReadFormat.avro:
        deserializer = AvroDeserializer(schema_registry_client_config=registry)
    else:
        # This schema accepts everything: records are shown as they are.
        deserializer = JSONDeserializer(schema={}, schema_registry_client_config=registry)

    def show(data: bytes, headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, str]:
        value = deserializer(data, SerializationContext(topic, field, list(headers)))
        return shown_json(value), "json"

    return show


def _protobuf_decoder(
    message: str | None, registry: "SchemaRegistryClientConfig | None", topic: str, field: "MessageField"
) -> Decoder:
    """Return a function that shows messages of a class as JSON.

    Args:
        message: the class, as `module:Class`.
        registry: connection to the registry that the ids before the messages belong to; None for messages without ids.
        topic: the topic that is read.
        field: key or value.

    Raises:
        ConfigurationError: if there is no such class, or a package is missing.
    """
    message = needed_message(message)
    from streamrt.serializers import ProtobufDeserializer, SerializationContext

    deserializer = ProtobufDeserializer(
        load_message_class(message), preserving_proto_field_name=True, schema_registry_client_config=registry
    )

    def show(data: bytes, headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, str]:
        return orjson.dumps(deserializer(data, SerializationContext(topic, field, list(headers)))).decode(), "json"

    return show
