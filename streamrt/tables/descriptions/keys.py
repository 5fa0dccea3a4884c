"""Keys of the records of a table: one value, or a tuple, of its key columns."""

from collections.abc import Mapping
from typing import Any

import orjson

from streamrt.errors import SchemaMismatchError, SerializationError
from streamrt.records import HeadersMapping
from streamrt.schema import RowCheck, Schema
from streamrt.serializers import BoundSerializer, Deserializer, MessageField, SerializationContext, Serializer
from streamrt.serializers.row_formats import KeyFormat
from streamrt.serializers.rows import json_value

__all__ = ["KeylessSerializer", "RowKey", "TableKeyDeserializer", "TableKeySerializer", "UpsertSerializer"]


class TableKeySerializer(Serializer):
    """Writes keys of a table: the value of its key column, a tuple or list of those of several, or a row with them.

    Args:
        form: the table's key format.

    Raises:
        SerializationError: by a key that does not fit: the message names column, type and rule, and no value.
    """

    def __init__(self, form: KeyFormat) -> None:
        self.form = form
        self._check = _check_of(form.schema, form.columns)

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes:  # noqa: D102
        if not isinstance(value, Mapping):
            is_one = len(self.form.columns) == 1 and not isinstance(value, tuple)
            value = (value,) if is_one else value
        try:
            return self.form.encode(self._check(value))
        except SchemaMismatchError as error:
            raise SerializationError(f"the key does not fit: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return TableKeySerializer, (self.form,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableKeySerializer) and _are_alike(self.form, other.form)

    def __hash__(self) -> int:
        return hash((type(self.form), self.form.columns))


class TableKeyDeserializer(Deserializer):
    """Reads keys of a table: the value of its key column, or a tuple of those of several.

    Args:
        form: the table's key format.

    Raises:
        SerializationError: by bytes that are not a key of the table.
    """

    def __init__(self, form: KeyFormat) -> None:
        self.form = form

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:  # noqa: D102
        found = self.form.decode(value)
        values = tuple(found[name] for name in self.form.columns)
        return values[0] if len(values) == 1 else values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableKeyDeserializer) and _are_alike(self.form, other.form)

    def __hash__(self) -> int:
        return hash((type(self.form), self.form.columns))


class KeylessSerializer(Serializer):
    """Writes keys for a table without key columns: bytes as they are, strings in UTF-8, and others as JSON.

    Raises:
        SerializationError: by a key that JSON has no form for.
    """

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes:  # noqa: D102
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return value.encode()
        try:
            return orjson.dumps(value, json_value, orjson.OPT_PASSTHROUGH_DATETIME)
        except orjson.JSONEncodeError as error:
            raise SerializationError(
                f"a key of type {type(value).__name__} has no form in JSON ({error}): pass to_table(key=...), a function "
                "that returns a text, bytes or None"
            ) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeylessSerializer)

    def __hash__(self) -> int:
        return hash(KeylessSerializer)


class UpsertSerializer(Serializer):
    """Writes rows of a table with a primary key; None deletes a row.

    Args:
        rows: writes rows.

    Raises:
        SerializationError: by a row that does not fit.
    """

    def __init__(self, rows: Serializer) -> None:
        self.rows = rows

    @property
    def extra_headers(self) -> HeadersMapping:
        """The headers of rows."""
        return self.rows.extra_headers

    @property
    def writes_headers(self) -> bool:
        """Whether rows have headers of their own."""
        return self.rows.writes_headers

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:  # noqa: D102
        return None if value is None else self.rows(value, ctx)

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:  # noqa: D102
        write = self.rows.bind(topic, field)
        return lambda value, headers: None if value is None else write(value, headers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UpsertSerializer) and self.rows == other.rows

    def __hash__(self) -> int:
        return hash((UpsertSerializer, self.rows))


class RowKey:
    """Returns the key of a row: the value of its key column, or a tuple of those of several.

    A row that does not fit has the key None: its value is refused, with a better message, before its key is written.

    Args:
        schema: the schema of the rows.
        columns: names of the key columns.

    Example:
        >>> from streamrt.schema import Schema
        >>> key = RowKey(Schema("id BIGINT, country STRING, city STRING"), ("country", "city"))
        >>> key({"id": 1, "country": "FR", "city": "Lyon"}), key([1, "FR", "Lyon"])
        (('FR', 'Lyon'), ('FR', 'Lyon'))
    """

    def __init__(self, schema: Schema, columns: tuple[str, ...]) -> None:
        self.schema = schema
        self.columns = columns
        self._positions = [schema.names.index(name) for name in columns]
        self._check = _check_of(schema, columns)

    def __call__(self, row: Any) -> Any:
        """Return the key of a row."""
        try:
            values = tuple(self._check(self._of_key(row)).values())
        except (SchemaMismatchError, IndexError):
            return None
        # A key of None would not be serialized, and so not be refused.
        return values if values == (None,) or len(values) > 1 else values[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return RowKey, (self.schema, self.columns)

    def _of_key(self, row: Any) -> Any:
        if isinstance(row, Mapping):
            return {name: row[name] for name in self.columns if name in row}
        if isinstance(row, list | tuple):
            return [row[position] for position in self._positions]
        raise SchemaMismatchError("not a row")


def _check_of(schema: Schema, columns: tuple[str, ...]) -> RowCheck:
    return RowCheck([schema.fields[schema.names.index(name)] for name in columns], from_json=True)


def _are_alike(one: KeyFormat, other: KeyFormat) -> bool:
    return type(one) is type(other) and (one.schema, one.columns) == (other.schema, other.columns)
