"""Samples of records, read in the format of the table: rows, and a schema that fits them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from streamrt.errors import InvalidOperationError, SchemaError, SerializationError
from streamrt.records import Headers
from streamrt.schema import Schema
from streamrt.serializers.base import MessageField
from streamrt.serializers.row_formats import RowFormat, row_format
from streamrt.tables.descriptions.info import TableInfo

if TYPE_CHECKING:
    from streamrt.serializers.registry import RegisteredSchema, SchemaRegistryClientConfig

__all__ = ["Sample", "SampleReader", "read_json", "sample_reader"]

_MAGIC_LENGTH = 5
_WORDS = {"string": "STRING", "bytes": "BINARY", "int": "INT", "double": "DOUBLE"}
_TOPIC = "samples"
"""Rows are decoded as of this topic, whose name no format looks at when it reads."""


@dataclass(frozen=True)
class Sample:
    """The form of some values.

    Attributes:
        schema: a schema that fits them, or None if none is a row.
        rows: the values that are rows, oldest first.
        columns: names of the columns that rows have.
        skipped: how many values are not rows.
        hint: what these may be, or None.
    """

    schema: Schema | None
    rows: list[dict[str, Any]] = field(default_factory=list)
    columns: tuple[str, ...] = ()
    skipped: int = 0
    hint: str | None = None


class SampleReader(Protocol):
    """Says what values look like."""

    def __call__(
        self, values: Sequence[bytes | None], types: bool, headers: Sequence[Headers | None] | None = None
    ) -> Sample:
        """Return what values look like.

        Args:
            values: the values, oldest first.
            types: whether types are inferred where the format has none.
            headers: the headers of the record of each value, which may have the id of its schema; None if there are none.
        """


def sample_reader(info: TableInfo, registry: "SchemaRegistryClientConfig | None") -> SampleReader:
    """Return what reads samples of a table.

    Args:
        info: the table.
        registry: connection to a schema registry, if there is one.

    Raises:
        InvalidOperationError: if values of its format do not say what their columns are.
    """
    options = dict(info.format_options or {})
    if info.format == "json":
        return read_json
    if info.format == "avro" and registry is not None and options.get("wire", "confluent") == "confluent":
        return _AvroSamples(registry)
    if info.format in ("avro", "protobuf"):
        why = (
            "without a schema registry, values of Avro do not say what their columns are"
            if info.format == "avro"
            else "messages of Protobuf do not say what the names of their columns are"
        )
        raise InvalidOperationError(
            f"detect_schema() of table {info.name!r} cannot look at the format {info.format!r}: {why}; set the schema that "
            "they were written with, by set_schema()"
        )
    return _OneColumn(info, options)


def read_json(values: Sequence[bytes | None], types: bool, headers: Sequence[Headers | None] | None = None) -> Sample:
    """Return what JSON objects look like; others are skipped.

    Args:
        values: the values, oldest first.
        types: whether types are inferred; otherwise all columns are strings.
        headers: the headers of their records, which change nothing.
    """
    rows, others = [], []
    for value in values:
        row = _read_object(value)
        if row is None:
            others.append(value)
        else:
            rows.append(row)
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    schema = Schema.infer(rows, types=types) if columns else None
    return Sample(schema, rows, columns, len(others), _find_hint(others))


class _AvroSamples:
    """Takes the schema that the newest value was written with."""

    def __init__(self, registry: "SchemaRegistryClientConfig") -> None:
        self._registry = registry

    def __call__(
        self, values: Sequence[bytes | None], types: bool, headers: Sequence[Headers | None] | None = None
    ) -> Sample:
        from streamrt.serializers.registry import SchemaReader

        find = SchemaReader("AVRO", self._registry).bind(_TOPIC, MessageField.VALUE, lambda found, _: lambda _: found)
        written_with: RegisteredSchema | None = None
        fault: SerializationError | None = None
        for value, beside in _with_headers(values, headers):
            if value is not None:
                try:
                    written_with = find(value, beside)
                except SerializationError as error:
                    fault = error
        if written_with is None:
            return _without_rows(values, self._find_hint(fault))
        try:
            schema = Schema.of_avro(written_with.schema.text)
        except SchemaError as error:
            raise SchemaError(f"no table can have the columns of {written_with}: {error}") from None
        return _decode_values(values, row_format("avro", schema, None, self._registry), self._find_hint, headers)

    @staticmethod
    def _find_hint(fault: SerializationError | None) -> str | None:
        return None if fault is None else f"values are not records of Avro with a schema in the registry: {fault}"


class _OneColumn:
    """Values that are one column, whole."""

    def __init__(self, info: TableInfo, options: Mapping[str, Any]) -> None:
        self._info = info
        self._options = options

    def __call__(
        self, values: Sequence[bytes | None], types: bool, headers: Sequence[Headers | None] | None = None
    ) -> Sample:
        given = [value for value in values if value is not None]
        schema = self._info.schema or self._detect_schema(given, types)
        if not given or schema is None:
            return _without_rows(values, "values are not JSON" if given else None)
        return _decode_values(values, row_format(self._info.format, schema, self._options), self._find_hint)

    def _find_hint(self, fault: SerializationError | None) -> str | None:
        return None if fault is None else f"values do not fit the format {self._info.format!r}: {fault}"

    def _detect_schema(self, values: Sequence[bytes], types: bool) -> Schema | None:
        word = {"raw": "bytes", "string": "string"}.get(self._info.format, self._options.get("serializer"))
        if word == "json":
            found = [{"value": each[0]} for each in map(_read_json, values) if each is not None]
            return Schema.infer(found, types=types) if found else None
        if word is None:
            word = "string" if all(map(_is_text, values)) else "bytes"
        return Schema([{"name": "value", "type": _WORDS[word]}])


def _with_headers(
    values: Sequence[bytes | None], headers: Sequence[Headers | None] | None
) -> Iterable[tuple[bytes | None, Headers | None]]:
    return zip(values, repeat(None) if headers is None else headers, strict=False)


def _decode_values(
    values: Sequence[bytes | None],
    rows_as: RowFormat,
    hint: Callable[[SerializationError | None], str | None],
    headers: Sequence[Headers | None] | None = None,
) -> Sample:
    decode = rows_as.deserializer.bind(_TOPIC, MessageField.VALUE)
    rows: list[dict[str, Any]] = []
    fault: SerializationError | None = None
    for value, beside in _with_headers(values, headers):
        if value is not None:
            try:
                rows.append(decode(value, beside))
            except SerializationError as error:
                fault = error
    if not rows:
        return _without_rows(values, hint(fault))
    return Sample(rows_as.schema, rows, rows_as.schema.names, len(values) - len(rows), hint(fault))


def _without_rows(values: Sequence[bytes | None], hint: str | None) -> Sample:
    if values and all(value is None for value in values):
        hint = "the records have no value"
    return Sample(None, skipped=len(values), hint=hint)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_json(value: bytes) -> tuple[Any] | None:
    try:
        return (orjson.loads(value),)
    except orjson.JSONDecodeError:
        return None


def _read_object(value: bytes | None) -> dict[str, Any] | None:
    found = None if value is None else _read_json(value)
    return found[0] if found is not None and isinstance(found[0], dict) else None


def _find_hint(values: Sequence[bytes | None]) -> str | None:
    """Return what values may be that are not JSON objects."""
    if not values:
        return None
    marked = [value for value in values if value is not None and len(value) > _MAGIC_LENGTH and value[0] == 0]
    if marked:
        number = int.from_bytes(marked[-1][1:_MAGIC_LENGTH], "big")
        return (
            f"values begin with the magic byte of a schema registry (schema id {number}): take the schema from there, "
            'and the format "avro" with the registry'
        )
    if all(value is None for value in values):
        return "the records have no value"
    return 'values are not JSON objects: use the format "single" or "string" for values that are one column, or "avro"'
