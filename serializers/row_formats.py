"""`RowFormat` and `KeyFormat`: how rows of a schema are bytes, one by one and in batches of Arrow."""

from collections.abc import Mapping, Sequence
from typing import Any

from streamrt.errors import ConfigurationError, SchemaError
from streamrt.schema import Schema
from streamrt.serializers.base import DeserializerType, SerializerType
from streamrt.serializers.names import resolve_deserializer, resolve_serializer
from streamrt.serializers.registry import SchemaRegistryClientConfig
from streamrt.serializers.rows.avro_format import AvroRowFormat
from streamrt.serializers.rows.contract import KeyFormat, RowFormat
from streamrt.serializers.rows.json_format import JSONRowFormat
from streamrt.serializers.rows.key_formats import AvroKeyFormat, IntKeyFormat, JSONKeyFormat, StrKeyFormat
from streamrt.serializers.rows.one_column_formats import RAW_SCHEMA, RawRowFormat, SingleRowFormat, StringRowFormat
from streamrt.serializers.rows.protobuf_format import ProtobufRowFormat

__all__ = ["KEY_FORMATS", "ROW_FORMATS", "KeyFormat", "RowFormat", "key_format", "raw_format", "row_format"]

ROW_FORMATS = ("json", "avro", "protobuf", "single", "string", "raw")
"""The words that `row_format` knows."""

_KEY_FORMATS: Mapping[str, type[KeyFormat]] = {
    "json": JSONKeyFormat,
    "str": StrKeyFormat,
    "int": IntKeyFormat,
    "avro": AvroKeyFormat,
}
KEY_FORMATS = tuple(_KEY_FORMATS)
"""The words that `key_format` knows."""


def row_format(
    name: str,
    schema: Schema | None,
    options: Mapping[str, Any] | None = None,
    registry: SchemaRegistryClientConfig | None = None,
) -> RowFormat:
    """Return the format of a name for rows of a schema.

    Args:
        name: one of `ROW_FORMATS`.
        schema: what rows must fit; None for the format `raw`, whose rows are `value BINARY`.
        options: settings of the format, such as `RowFormat.options` returns them.
        registry: connection to a schema registry. Formats that have no use for one (`json`, `single`, `string`, `raw`) do not
            connect to it.

    Raises:
        ConfigurationError: if there is no such format or option.
        SchemaError: if the format cannot carry a column, or needs a schema.

    Example:
        >>> row_format("json", Schema("id BIGINT")).encode({"id": 7}, "orders")
        b'{"id":7}'
        >>> row_format("single", Schema("celsius DOUBLE")).decode(bytes(8), "temperatures")
        {'celsius': 0.0}
    """
    if name not in ROW_FORMATS:
        raise ConfigurationError(f"there is no format {name!r} of rows; there are {', '.join(ROW_FORMATS)}")
    if name == "raw":
        if schema is not None and schema.names != RAW_SCHEMA.names:
            raise SchemaError("the format 'raw' needs no schema: its rows have one column, 'value'")
        # Other types are those of values that only serializers know.
        return _raw_by_names(options or {}, schema if schema and schema.types == RAW_SCHEMA.types else None)
    if schema is None:
        raise SchemaError(f"the format {name!r} needs a schema; 'raw' alone has none")
    if name == "avro":
        return AvroRowFormat(schema, options, registry)
    if name == "protobuf":
        return ProtobufRowFormat(schema, options, registry)
    if name == "single":
        return SingleRowFormat(schema, options)
    if name == "string":
        return StringRowFormat(schema, options)
    if options:
        raise ConfigurationError(f"the format {name!r} has no option {sorted(options)[0]!r}")
    return JSONRowFormat(schema)


def raw_format(serializer: SerializerType = "bytes", deserializer: DeserializerType = "bytes") -> RowFormat:
    """Return the format of values that serializers without a schema make: rows are `{"value": ...}`.

    Args:
        serializer: writes values, an object or a name.
        deserializer: reads them, an object or a name.

    Raises:
        ConfigurationError: if there is no such serializer, or one value may become several.

    Example:
        >>> raw_format("json", "json").decode(b"[1]", "numbers")
        {'value': [1]}
    """
    pair = resolve_serializer(serializer), resolve_deserializer(deserializer)
    return RawRowFormat(*pair, words=(serializer, deserializer))


def _raw_by_names(options: Mapping[str, Any], schema: Schema | None) -> RowFormat:
    unknown = sorted(options.keys() - {"serializer", "deserializer"})
    if unknown:
        raise ConfigurationError(
            f"the format 'raw' has no option {unknown[0]!r}; it has 'serializer' and 'deserializer'"
        )
    words = options.get("serializer", "bytes"), options.get("deserializer", "bytes")
    return RawRowFormat(resolve_serializer(words[0]), resolve_deserializer(words[1]), words, schema)


def key_format(name: str, schema: Schema, columns: Sequence[str]) -> KeyFormat:
    """Return the format of a name for the keys of rows.

    Args:
        name: one of `KEY_FORMATS`.
        schema: the schema of the rows.
        columns: names of the key columns, in order.

    Raises:
        ConfigurationError: if there is no such format.
        SchemaError: if there is no such column, or the format cannot carry it.

    Example:
        >>> key_format("json", Schema("id BIGINT, city STRING"), ["city", "id"]).encode({"id": 7, "city": "Lyon"})
        b'["Lyon",7]'
    """
    if name not in _KEY_FORMATS:
        raise ConfigurationError(f"there is no format {name!r} of keys; there are {', '.join(KEY_FORMATS)}")
    return _KEY_FORMATS[name](schema, columns)
