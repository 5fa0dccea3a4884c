"""`RowFormat` and `KeyFormat`: how rows of a schema are bytes, one by one and in batches of Arrow."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamrt.errors import ConfigurationError, SchemaError
from streamrt.schema import Schema
from streamrt.serializers.row_avro import AvroRowFormat
from streamrt.serializers.row_contract import KeyFormat, RowFormat
from streamrt.serializers.row_json import JSONRowFormat
from streamrt.serializers.row_keys import JSONKeyFormat

if TYPE_CHECKING:
    from streamrt.serializers.registry import SchemaRegistryClientConfig

__all__ = ["KEY_FORMATS", "ROW_FORMATS", "KeyFormat", "RowFormat", "key_format", "row_format"]

ROW_FORMATS = ("json", "avro")
"""The words that `row_format` knows."""

KEY_FORMATS = ("json",)
"""The words that `key_format` knows."""


def row_format(
    name: str,
    schema: Schema,
    options: Mapping[str, Any] | None = None,
    registry: "SchemaRegistryClientConfig | None" = None,
) -> RowFormat:
    """Return the format of a name for rows of a schema.

    Args:
        name: one of `ROW_FORMATS`.
        schema: what rows must fit.
        options: settings of the format, such as `RowFormat.options` returns them.
        registry: connection to a schema registry, for formats that use one.

    Raises:
        ConfigurationError: if there is no such format or option.
        SchemaError: if the format cannot carry a column.

    Example:
        >>> row_format("json", Schema("id BIGINT")).encode({"id": 7}, "orders")
        b'{"id":7}'
    """
    if name == "avro":
        return AvroRowFormat(schema, options, registry)
    if name != "json":
        raise ConfigurationError(f"there is no format {name!r} of rows; there are {', '.join(ROW_FORMATS)}")
    if options:
        raise ConfigurationError(f"the format {name!r} has no option {sorted(options)[0]!r}")
    return JSONRowFormat(schema)


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
    if name != "json":
        raise ConfigurationError(f"there is no format {name!r} of keys; there are {', '.join(KEY_FORMATS)}")
    if not columns:
        raise SchemaError("a key needs a column")
    schema.project(list(columns))
    return JSONKeyFormat(schema, columns)
