"""Formats of a schema registry for `streamrt produce`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from streamrt.cli.programs.loading import load_message_class
from streamrt.cli.records.record_values import WriteFormat, encode
from streamrt.cli.records.schemas import needed_message, needed_registry, registry_for
from streamrt.errors import ConfigurationError, SerializationError

if TYPE_CHECKING:
    from streamrt.serializers import MessageField, Serializer
    from streamrt.serializers.registry import SchemaRegistryClientConfig

__all__ = ["Encoder", "KeySchemaOption", "SchemaOption", "encoders"]

Encoder = Callable[[bytes], bytes | None]
"""Function of what a user gives for a key or value that returns its bytes, or None for no value."""
_WITH_FILE = (WriteFormat.avro, WriteFormat.json_schema)

SchemaOption = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="Schema of the values for avro and json-schema, which is registered; by default the latest of the subject.",
    ),
]
KeySchemaOption = Annotated[
    Path | None, typer.Option("--key-schema", metavar="FILE", help="The same for the key, and the subject of keys.")
]


def encoders(
    topic: str,
    value_format: WriteFormat,
    key_format: WriteFormat,
    url: str | None,
    config: Path | None,
    schema: Path | None = None,
    key_schema: Path | None = None,
    message: str | None = None,
) -> tuple[Encoder, Encoder]:
    """Return the functions that make bytes of values and keys.

    Args:
        topic: the topic that is written to.
        value_format: format of the values.
        key_format: format of the keys.
        url: the option `--registry`.
        config: the option `--config`.
        schema: the option `--schema`.
        key_schema: the option `--key-schema`.
        message: the option `--message`.

    Raises:
        BadParameter: if an option has no effect with these formats.
        ConfigurationError: if a schema registry, a schema or a class of messages is needed and missing, or invalid.
        SchemaRegistryError: if the registry has no schema for the subject, or does not answer.
    """
    from streamrt.serializers import MessageField

    for option, path, form in (("--schema", schema, value_format), ("--key-schema", key_schema, key_format)):
        if path is not None and form not in _WITH_FILE:
            why = "protobuf takes its schema from --message" if form is WriteFormat.protobuf else "it has no effect"
            raise typer.BadParameter(f"{why}: it is for the formats avro and json-schema alone", param_hint=option)
    registry = registry_for((value_format, key_format), url, config, message)

    def encoder(write_format: WriteFormat, path: Path | None, field: MessageField) -> Encoder:
        if not write_format.needs_schema:
            return lambda data: encode(data, write_format)
        if write_format is WriteFormat.protobuf:
            return _protobuf_encoder(message, registry, topic, field)
        make = _avro_encoder if write_format is WriteFormat.avro else _json_schema
        return make(needed_registry(write_format.value, registry), path, topic, field)

    return encoder(value_format, schema, MessageField.VALUE), encoder(key_format, key_schema, MessageField.KEY)


def _avro_encoder(
    registry: "SchemaRegistryClientConfig", path: Path | None, topic: str, field: "MessageField"
) -> Encoder:
    """Return a function that writes JSON values as Avro.

    Raises:
        ConfigurationError: if the schema cannot be used, or a package is missing.
    """
    from streamrt.serializers import AvroSerializer, SerializationContext
    from streamrt.serializers.avro import compile_registered
    from streamrt.serializers.avro.compiled_schema import InvalidAvroSchemaError, compile_schema, load_schema
    from streamrt.serializers.avro.readable_json import AvroValues
    from streamrt.serializers.registry import (
        SchemaRegistrySerializationConfig,
        open_registry,
        topic_subject_name_strategy,
    )

    if path is not None:
        text = _text_of(path)
        try:
            compiled = compile_schema(load_schema(text))
        except InvalidAvroSchemaError as error:
            raise ConfigurationError(f"the schema in {path} cannot be used: {error}") from None
        serializer = AvroSerializer(text, strict_allow_default=True, schema_registry_client_config=registry)
    else:
        opened = open_registry(registry)
        found = opened.latest(topic_subject_name_strategy(SerializationContext(topic, field), None))
        if found.type != "AVRO":
            raise ConfigurationError(f"{found} of the registry is of type {found.type}, and not AVRO")
        compiled = compile_registered(found, opened)
        # The values are made for this schema, also if a newer one is registered meanwhile.
        use = SchemaRegistrySerializationConfig(auto_register_schemas=False, use_schema_id=found.id)
        serializer = AvroSerializer(
            None,
            strict_allow_default=True,
            schema_registry_client_config=registry,
            schema_registry_serialization_config=use,
        )
    return _of_json(serializer, topic, field, AvroValues(compiled).of)


def _json_schema(
    registry: "SchemaRegistryClientConfig", path: Path | None, topic: str, field: "MessageField"
) -> Encoder:
    """Return a function that writes JSON values that follow a schema.

    Raises:
        ConfigurationError: if the schema cannot be used, or a package is missing.
    """
    from streamrt.serializers import JSONSerializer
    from streamrt.serializers.registry import RegistrySchema, SchemaRegistrySerializationConfig

    latest = SchemaRegistrySerializationConfig(auto_register_schemas=False, use_latest_version=True)
    serializer = JSONSerializer(
        schema=None if path is None else RegistrySchema(_text_of(path)),
        schema_registry_client_config=registry,
        schema_registry_serialization_config=latest if path is None else None,
    )
    return _of_json(serializer, topic, field, lambda value: value)


def _protobuf_encoder(
    message: str | None, registry: "SchemaRegistryClientConfig | None", topic: str, field: "MessageField"
) -> Encoder:
    """Return a function that writes JSON values as messages of a class.

    Raises:
        ConfigurationError: if there is no such class, or a package is missing.
    """
    from streamrt.serializers import ProtobufSerializer

    serializer = ProtobufSerializer(load_message_class(needed_message(message)), schema_registry_client_config=registry)
    return _of_json(serializer, topic, field, lambda value: value)


def _of_json(serializer: "Serializer", topic: str, field: "MessageField", made: Callable[[Any], Any]) -> Encoder:
    """Return a function that reads JSON and serializes what is made of it."""
    write = serializer.bind(topic, field)

    def encoded(data: bytes) -> bytes | None:
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise SerializationError(f"it is not JSON: {error}; a text has quotation marks, too") from None
        return write(made(value), None)

    return encoded


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"the schema in {path} cannot be read: {why}") from None
