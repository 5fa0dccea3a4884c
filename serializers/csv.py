"""Rows of a schema as values of a topic, in CSV: one row in each record, without names of columns."""

import csv
import math
import re
from typing import Any

import orjson
import pyarrow as pa

from streamrt.common.csv_rows import rows_of
from streamrt.errors import ArgumentTypeError, ConfigurationError, SchemaError, SchemaMismatchError, SerializationError
from streamrt.schema import Column, RowCheck, Schema
from streamrt.schema.schema import Columns
from streamrt.schema.types import is_utf8
from streamrt.schema.values import Check, ValueMismatchError, check_for
from streamrt.serializers.base import (
    BoundDeserializer,
    BoundSerializer,
    Deserializer,
    MessageField,
    SerializationContext,
    Serializer,
)
from streamrt.serializers.rows import json_value, name_infinite, write_json

__all__ = ["CSVDeserializer", "CSVSerializer", "field_reader", "field_text"]

# `int` and `float` also read blanks, `_` and the digits of other scripts.
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NO_NUMBER = re.compile(r"nan|[+-]?inf(inity)?", re.IGNORECASE)
_TRUTH = {"true": True, "false": False, "1": True, "0": False}
_LINE_END = "\r\n"


class _Rows:
    """Holds the schema and the dialect, for both directions.

    Args:
        schema: the columns, in the order of the fields.
        delimiter: between two fields.
        quote: around fields with special characters; None means that no field is quoted.
        escape: before a special character; None means that there is no such character.
        null: field of a column that is null.
    """

    def __init__(
        self,
        schema: Schema | Columns,
        *,
        delimiter: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        null: str = "",
    ) -> None:
        self._schema = schema if isinstance(schema, Schema) else Schema(schema)
        self._null = null
        for column in self._schema.fields:
            if pa.types.is_nested(column.dtype):
                raise SchemaError(
                    f"column {column.name!r} ({column.word}) cannot be a field of CSV, which carries single values: "
                    "use JSON or Avro, or a STRING"
                )
        characters = {"delimiter": delimiter, "quote": quote, "escape": escape}
        for name, character in characters.items():
            if character is not None or name == "delimiter":
                _check_character(name, character)
        used = [each for each in characters.values() if each is not None]
        if len(set(used)) < len(used):
            raise ConfigurationError(f"delimiter, quote and escape of CSV must be different characters, not {used}")
        if not isinstance(null, str) or not is_utf8(null) or "\0" in null:
            raise ArgumentTypeError("null=... of CSV must be a text of UTF-8 without NUL, such as '\\\\N'")
        self._settings: dict[str, Any] = {
            "delimiter": delimiter,
            "quotechar": quote,
            "quoting": csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL,
            "escapechar": escape,
            # The writer quotes the characters of line ends for it.
            "lineterminator": _LINE_END,
            "strict": True,
        }


class CSVSerializer(_Rows, Serializer):
    r"""Writes rows of a schema as CSV, in UTF-8: one row in each record, without a line end and without names of columns.

    Numbers and booleans are as in JSON (with `NaN`, `Infinity` and `-Infinity`), dates and times in ISO 8601, and bytes
    in base64; decimals have all digits of their scale. None instead of a row becomes a tombstone.

    Args:
        schema: what rows must fit: a `Schema`, or what it is made from. Lists, structs and maps cannot be fields.
        delimiter: character between two fields.
        quote: character around fields that contain special characters, which doubles in them; None means that no field is
            quoted.
        escape: character before a special character; None means that there is none.
        null: field of a column that is null. A value of a nullable column that would be written like it is refused.

    Raises:
        ConfigurationError: if an option cannot be used.
        SchemaError: if CSV cannot carry a column.
        SerializationError: by a row that does not fit or would be read back as another: the message names column, type and
            rule, and no value.

    Example:
        >>> serialize = CSVSerializer("id BIGINT NOT NULL, name STRING, price DECIMAL(10, 2)", null=r"\N")
        >>> serialize([7, "Lyon, 2", "9.5"], SerializationContext("orders", MessageField.VALUE))
        b'7,"Lyon, 2",9.50'
        >>> serialize({"id": 8}, SerializationContext("orders", MessageField.VALUE))
        b'8,\\N,\\N'
    """

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:  # noqa: D102
        return CSVSerializer.bind(self, ctx.topic, ctx.field)(value, ctx.headers)

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:  # noqa: D102
        schema, null, settings = self._schema, self._null, self._settings
        check, unquoted = schema.check, settings["quotechar"] is None
        columns = [(each, each.name, each.nullable) for each in schema.fields]
        write = csv.writer(_Returned(), **settings).writerow

        def serialize(value: Any, headers: Any) -> bytes | None:
            if value is None:
                return None
            try:
                row = check(value)
            except SchemaMismatchError as error:
                raise SerializationError(str(error)) from None
            fields = []
            for column, name, nullable in columns:
                cell = row[name]
                text = null if cell is None else field_text(cell)
                if "\0" in text:
                    raise _make_misfit(column, "a text without NUL characters, which readers of CSV refuse")
                if nullable and cell is not None and text == null:
                    raise _make_misfit(
                        column, f"other than {null!r}, which is how CSV has null here: set null= to another text"
                    )
                fields.append(text)
            if unquoted and fields == [""]:
                # The writer would refuse it.
                return b""
            try:
                line: str = write(fields)
            except csv.Error as error:
                raise _make_refusal(schema, settings, fields, error) from None
            return line[: -len(_LINE_END)].encode()

        return serialize


class CSVDeserializer(_Rows, Deserializer):
    r"""Reads rows of a schema from CSV, in UTF-8: one row in each record, with a field for each column, in their order.

    A line end behind the row is left out. Booleans are `true` and `false`, in any case, or 1 and 0.

    Args:
        schema: what rows must fit: a `Schema`, or what it is made from. Lists, structs and maps cannot be fields.
        delimiter: character between two fields.
        quote: character around fields that contain special characters, which doubles in them; None means that no field is
            quoted.
        escape: character before a special character; None means that there is none.
        null: field that means null, quoted or not, where the column is nullable.

    Raises:
        ConfigurationError: if an option cannot be used.
        SchemaError: if CSV cannot carry a column.
        SerializationError: by bytes that are not a row of the schema: the message names column, type and rule, and no value.

    Example:
        >>> deserialize = CSVDeserializer("id BIGINT NOT NULL, name STRING, price DECIMAL(10, 2)", delimiter=";")
        >>> deserialize(b'7;"Lyon; 2";', SerializationContext("orders", MessageField.VALUE))
        {'id': 7, 'name': 'Lyon; 2', 'price': None}
    """

    def __call__(self, value: bytes, ctx: SerializationContext) -> dict[str, Any]:  # noqa: D102
        row: dict[str, Any] = CSVDeserializer.bind(self, ctx.topic, ctx.field)(value, ctx.headers)
        return row

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:  # noqa: D102
        schema, null, settings = self._schema, self._null, self._settings
        columns = [(each.name, each.nullable) for each in schema.fields]
        check = RowCheck(schema.fields, decoded=True, convert={each.name: field_reader(each) for each in schema.fields})

        def deserialize(value: bytes, headers: Any) -> dict[str, Any]:
            fields = _read_fields(value, settings)
            if len(fields) != len(columns):
                raise SerializationError(f"{len(fields)} fields for {len(columns)} columns")
            row = {
                name: None if nullable and text == null else text
                for (name, nullable), text in zip(columns, fields, strict=True)
            }
            try:
                return check.mapping(row)
            except SchemaMismatchError as error:
                raise SerializationError(str(error)) from None

        return deserialize


def field_reader(column: Column) -> Check:
    """Return what makes of a field of CSV what the column checks; it raises `ValueMismatchError`.

    Args:
        column: a column. Lists, structs and maps are JSON; `CSVDeserializer` has none of them.
    """
    dtype = column.dtype
    if pa.types.is_nested(dtype):
        return orjson.loads
    if pa.types.is_integer(dtype):
        return _read_integer
    if pa.types.is_floating(dtype):
        return _read_number
    if pa.types.is_boolean(dtype):
        return _read_boolean
    if pa.types.is_binary(dtype) or pa.types.is_fixed_size_binary(dtype):
        return check_for(pa.binary(), from_json=True)
    return _return_string


def field_text(value: Any) -> str:
    """Return a value of a row as a field of CSV; the opposite of `field_reader`.

    Args:
        value: a value, not None.

    Example:
        >>> from decimal import Decimal
        >>> field_text(Decimal("0.00000001")), field_text(True), field_text(["a"])
        ('0.00000001', 'true', '["a"]')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(name_infinite(value))
    if isinstance(value, int):
        return repr(value)
    return write_json(value).decode() if isinstance(value, (list, dict)) else json_value(value)


class _Returned:
    """A file for `csv.writer`, which returns what `write` does."""

    def write(self, text: str) -> str:
        return text


def _check_character(name: str, character: object) -> None:
    if not isinstance(character, str):
        raise ArgumentTypeError(f"{name}=... of CSV must be one character, not {type(character).__name__}")
    if len(character) != 1 or character in "\r\n\0" or not is_utf8(character):
        raise ConfigurationError(f"{name}={character!r} of CSV must be one character, and no line end")


def _make_misfit(column: Column, rule: str) -> SerializationError:
    return SerializationError(f"column {column.name!r} ({column.word}) must be {rule}")


def _make_refusal(schema: Schema, settings: dict[str, Any], fields: list[str], error: csv.Error) -> SerializationError:
    """Return the error that names the column that the writer refuses."""
    write = csv.writer(_Returned(), **settings).writerow
    for column, text in zip(schema.fields, fields, strict=True):
        try:
            # A single field has rules of its own.
            write([text, "1"])
        except csv.Error:
            return _make_misfit(column, "a text without special characters of CSV: set quote= or escape=")
    return SerializationError(f"the row cannot be written as CSV: {error}")


def _read_fields(value: bytes, settings: dict[str, Any]) -> list[str]:
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise SerializationError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    if "\0" in text:
        raise SerializationError("not CSV: it has a NUL character")
    try:
        # Without a line end, the reader would expect more behind an escaped one.
        fields: list[str] = next(rows_of([text + "\n"], settings))
    except csv.Error as error:
        several = "; a record holds one row" if "new-line" in str(error) else ""
        raise SerializationError(f"not CSV: {error}{several}") from None
    # No characters are one empty field.
    return fields or [""]


def _read_integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueMismatchError("an integer")
    return int(text)


def _read_number(text: str) -> float:
    if _NO_NUMBER.fullmatch(text):
        return float(text)
    if not _NUMBER.fullmatch(text):
        raise ValueMismatchError("a number")
    number = float(text)
    if math.isinf(number):
        raise ValueMismatchError("a number that a float can hold")
    return number


def _read_boolean(text: str) -> bool:
    try:
        return _TRUTH[text.lower()]
    except KeyError:
        raise ValueMismatchError("true or false") from None


def _return_string(text: str) -> str:
    return text
