"""`Schema`: names and types of columns, with the primary key and the column of the event time."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import pyarrow as pa
from typing_extensions import Self

from streamrt.errors import ArgumentTypeError, SchemaError
from streamrt.schema.avro import columns_of_avro, columns_to_avro
from streamrt.schema.columns import COLUMN_KEYS, NO_DEFAULT, Column, RowCheck, column_check
from streamrt.schema.ddl import parse_columns, parse_type
from streamrt.schema.json_schema import columns_of_json_schema, columns_to_json_schema
from streamrt.schema.types import can_be_key, checked_name, column_type, is_utf8, quoted, type_word
from streamrt.schema.values import ValueMismatchError

__all__ = ["NO_DEFAULT", "Column", "Columns", "Schema"]

Columns: TypeAlias = str | pa.Schema | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Sources of a schema: a DDL text, Arrow's schema, types by name, or a mapping for each column."""


@dataclass(frozen=True, init=False, repr=False)
class Schema:
    """Names and types of the columns of rows; equal by value, and picklable.

    Args:
        columns: a DDL text such as `"id BIGINT NOT NULL, name STRING"`, a schema of Arrow, a type for each name (of Arrow,
            or a word), or a mapping for each column with `name`, `type`, and, if it has them, `nullable`, `length`,
            `comment` and `default`.
        primary_key: names of the columns that identify a row. They are never null.
        time: name of the column with the event time, a `TIMESTAMP`, `TIMESTAMP_LTZ`, `DATE` or `BIGINT` (milliseconds).
        comment: what a row means.

    Raises:
        SchemaError: if the columns cannot be used: a name twice, an unknown type, a primary key of floats or lists, a
            default that does not fit.

    Example:
        >>> schema = Schema("id BIGINT NOT NULL, name STRING, PRIMARY KEY (id)")
        >>> schema.names, schema.types, schema.primary_key
        (('id', 'name'), ('BIGINT', 'STRING'), ('id',))
        >>> schema.check({"id": 1})
        {'id': 1, 'name': None}
        >>> schema.check([1, "Ann"])
        {'id': 1, 'name': 'Ann'}
        >>> schema.check({"id": "one"})
        Traceback (most recent call last):
            ...
        streamrt.errors.SchemaMismatchError: column 'id' (BIGINT) must be an integer
    """

    fields: tuple[Column, ...]
    primary_key: tuple[str, ...]
    time: str | None
    comment: str | None
    _check: RowCheck = field(compare=False)

    def __init__(
        self, columns: Columns, *, primary_key: Sequence[str] = (), time: str | None = None, comment: str | None = None
    ) -> None:
        given, keys = _read_columns(columns)
        if isinstance(primary_key, str):
            raise ArgumentTypeError(f"Schema(primary_key=...) must be a list of names, such as [{primary_key!r}]")
        if keys and primary_key and tuple(primary_key) != keys:
            raise SchemaError("the primary key is given twice: in the text and as `primary_key=`")
        keys = tuple(primary_key) or keys
        made = tuple(_make_column(each, each.get("name") in keys) for each in given)
        if not isinstance(comment, str | None):
            raise ArgumentTypeError(f"Schema(comment=...) must be a text, not {type(comment).__name__}")
        for each in (comment, *(column.comment for column in made)):
            if each is not None and not is_utf8(each):
                raise SchemaError("a comment of the schema has characters that UTF-8 cannot hold")
        _check_names(made, keys, time)
        values = {
            "fields": made,
            "primary_key": keys,
            "time": time,
            "comment": comment,
            "_check": RowCheck(made),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def parse(cls, text: str, *, time: str | None = None, comment: str | None = None) -> Self:
        """Return the schema of a DDL text: columns as in `CREATE TABLE`, in Spark's words.

        Args:
            text: such as `"id BIGINT NOT NULL, name STRING COMMENT 'as in the passport', PRIMARY KEY (id)"`.
            time: name of the column with the event time.
            comment: what a row means.

        Raises:
            SchemaError: if it cannot be read as columns; it says where.

        Example:
            >>> Schema.parse("at TIMESTAMP, amount DECIMAL(10, 2)", time="at").types
            ('TIMESTAMP', 'DECIMAL(10, 2)')
        """
        return cls(text, time=time, comment=comment)

    @classmethod
    def infer(cls, rows: Iterable[Mapping[str, Any]], *, types: bool = False) -> Self:
        """Return a schema that fits rows: all of their columns, in the order in which they come first.

        Args:
            rows: rows, as mappings.
            types: whether types are inferred from the values. Columns whose values have different types, or none, and all
                columns without `types`, are `STRING`.

        Raises:
            SchemaError: if there is no row, or no column.

        Example:
            >>> rows = [{"n": 1, "city": "Lyon"}, {"n": 2.5, "ok": True}]
            >>> Schema.infer(rows, types=True).types
            ('DOUBLE', 'STRING', 'BOOLEAN')
        """
        values: dict[str, list[Any]] = {}
        for row in rows:
            for name, value in row.items():
                values.setdefault(name, []).append(value)
        if not values:
            raise SchemaError("a schema cannot be inferred from no rows, or from rows without columns")
        return cls({name: _infer_type(column) if types else pa.string() for name, column in values.items()})

    @classmethod
    def of_avro(cls, schema: str | Mapping[str, Any], *, time: str | None = None) -> Self:
        """Return the schema whose rows hold the records of an Avro schema.

        Enums and UUIDs become strings, milliseconds microseconds, and unions with null columns that may be null.

        Args:
            schema: a record type, as JSON or as objects.
            time: name of the column with the event time.

        Raises:
            SchemaError: if it is not a record, or no column could hold all values of a field: unions of several types,
                nanoseconds, times of day in microseconds, durations, records that contain themselves.

        Example:
            >>> Schema.of_avro({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})
            Schema('id BIGINT NOT NULL')
        """
        columns, comment = columns_of_avro(schema)
        return cls(columns, time=time, comment=comment)

    def to_avro(self, name: str = "Row") -> dict[str, Any]:
        """Return the record type of Avro that the format `avro` writes rows with; `of_avro` takes it back.

        Args:
            name: full name of the record.

        Raises:
            SchemaError: if Avro cannot carry a column: maps whose keys are not strings, names with other characters than
                letters, digits and `_`.

        Example:
            >>> Schema("id BIGINT NOT NULL").to_avro("shop.Order")
            {'type': 'record', 'name': 'shop.Order', 'fields': [{'name': 'id', 'type': 'long'}]}
        """
        return columns_to_avro(self.fields, name, self.comment)

    @classmethod
    def of_json_schema(cls, schema: str | Mapping[str, Any], *, time: str | None = None) -> Self:
        """Return the schema whose rows hold the objects of a JSON Schema.

        Args:
            schema: a schema of objects, as JSON or as objects.
            time: name of the column with the event time.

        Raises:
            SchemaError: if it is none, or no column could hold all values of a property: several types, references.

        Example:
            >>> Schema.of_json_schema({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
            Schema('id BIGINT NOT NULL')
        """
        columns, comment = columns_of_json_schema(schema)
        return cls(columns, time=time, comment=comment)

    def to_json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the objects that the format `json` writes; `of_json_schema` takes it back.

        Example:
            >>> Schema("id BIGINT NOT NULL").to_json_schema()["properties"]["id"]["type"]
            'integer'
        """
        return columns_to_json_schema(self.fields, self.comment)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(each.name for each in self.fields)

    @property
    def types(self) -> tuple[str, ...]:
        """Types of the columns, as words."""
        return tuple(each.word for each in self.fields)

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The columns as mappings, which `Schema` takes back."""
        return [each.as_dict() for each in self.fields]

    @property
    def arrow(self) -> pa.Schema:
        """The schema as Arrow has it; comments are its metadata."""
        return pa.schema(
            [
                pa.field(
                    each.name,
                    each.dtype,
                    each.nullable,
                    metadata=None if each.comment is None else {"comment": each.comment},
                )
                for each in self.fields
            ]
        )

    def column(self, name: str) -> dict[str, Any] | None:
        """Return a column as a mapping, or None if there is none of this name."""
        return next((each.as_dict() for each in self.fields if each.name == name), None)

    def project(self, columns: Sequence[str | int]) -> "Schema":
        """Return the schema of some columns, in the order given, by name or by number from 0.

        The primary key and the event time stay if all of their columns do.

        Raises:
            SchemaError: if there is no such column, or one is given twice.

        Example:
            >>> Schema("id INT, name STRING").project([1, "id"]).names
            ('name', 'id')
        """
        chosen = [self._column_position(column) for column in columns]
        names = [self.fields[position].name for position in chosen]
        return Schema(
            [self.fields[position].as_dict() for position in chosen],
            primary_key=self.primary_key if set(self.primary_key) <= set(names) else (),
            time=self.time if self.time in names else None,
            comment=self.comment,
        )

    def check(self, row: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        """Return a row with its columns in order, and each value as its column keeps it.

        Integers become floats, ISO 8601 strings dates and times, and strings decimals where the column has such a type.

        Args:
            row: a mapping, or a list or tuple with a value for each column. Mappings may leave out what has a default or
                may be null.

        Raises:
            SchemaMismatchError: if the row does not fit; it names column, type and rule, and no value.
        """
        return self._check(row)

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        parts = [str(each) for each in self.fields]
        if self.primary_key:
            parts.append(f"PRIMARY KEY ({', '.join(map(quoted, self.primary_key))})")
        return ", ".join(parts)

    def __repr__(self) -> str:
        more = [f"{name}={getattr(self, name)!r}" for name in ("time", "comment") if getattr(self, name) is not None]
        return f"Schema({', '.join([repr(str(self)), *more])})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake_schema, (self.columns, self.primary_key, self.time, self.comment)

    def _column_position(self, column: str | int) -> int:
        if isinstance(column, str) and column in self.names:
            return self.names.index(column)
        if isinstance(column, int) and not isinstance(column, bool) and 0 <= column < len(self.fields):
            return column
        raise SchemaError(f"there is no column {column!r}; the columns are {', '.join(self.names)}")


def _remake_schema(columns: Any, primary_key: Sequence[str], time: str | None, comment: str | None) -> Schema:
    return Schema(columns, primary_key=primary_key, time=time, comment=comment)


def _read_columns(columns: Columns) -> tuple[Iterable[Mapping[str, Any]], tuple[str, ...]]:
    """Return a mapping for each column, and the primary key that a text names."""
    if isinstance(columns, str):
        return parse_columns(columns)
    if isinstance(columns, pa.Schema):
        return [_of_arrow(each) for each in columns], ()
    if isinstance(columns, Mapping):
        # As some systems hand schemas out.
        if set(columns) == {"columns"} and isinstance(columns["columns"], list):
            return _read_columns(columns["columns"])
        return [{"name": name, "type": dtype} for name, dtype in columns.items()], ()
    if isinstance(columns, Sequence) and all(isinstance(each, Mapping) for each in columns):
        given = cast("Sequence[Mapping[str, Any]]", columns)
        return given, tuple(str(each.get("name")) for each in given if each.get("primary_key"))
    raise ArgumentTypeError(
        "Schema(columns=...) must be a text, a schema of Arrow, types by name, or a mapping for each column, not "
        f"{type(columns).__name__}"
    )


def _of_arrow(arrow: pa.Field) -> dict[str, Any]:
    comment = (arrow.metadata or {}).get(b"comment")
    return {
        "name": arrow.name,
        "type": arrow.type,
        "nullable": arrow.nullable,
        "comment": None if comment is None else comment.decode(errors="replace"),
    }


def _make_column(given: Mapping[str, Any], in_key: bool) -> Column:
    unknown = sorted(map(str, given.keys() - {*COLUMN_KEYS, "primary_key"}))
    name = given.get("name")
    if unknown or not isinstance(name, str) or not name or "type" not in given:
        what = f"has {unknown[0]!r}" if unknown else "has no name or no type"
        raise SchemaError(f"a column {what}; columns have {', '.join(COLUMN_KEYS)}")
    dtype, length = given["type"], given.get("length")
    if isinstance(dtype, str):
        dtype, from_word = parse_type(dtype, f"column {name!r}")
        length = from_word if from_word is not None else length
    elif not isinstance(dtype, pa.DataType):
        raise SchemaError(f"column {name!r} has the type {dtype!r}, which is neither Arrow's nor a word")
    checked_name(name, "a column")
    dtype = column_type(dtype, f"column {name!r}")
    if length is not None and (dtype != pa.string() or type(length) is not int or length < 1):
        raise SchemaError(f"column {name!r} has a length: texts alone do, of 1 or more characters")
    nullable, comment = given.get("nullable", True), given.get("comment")
    if type(nullable) is not bool or not isinstance(comment, str | None):
        raise SchemaError(f"column {name!r}: 'nullable' must be true or false, and 'comment' a text")
    column = Column(name, dtype, nullable and not in_key, length, comment)
    if "default" not in given:
        return column
    if pa.types.is_nested(dtype):
        raise SchemaError(f"column {name!r} ({column.word}) has a default, which lists, structs and maps do not have")
    try:
        default = column_check(column)(given["default"])
    except ValueMismatchError as misfit:
        raise SchemaError(f"the default of column {name!r} ({column.word}) must be {misfit.rule}") from None
    if isinstance(default, float) and not math.isfinite(default):
        # Neither the text of a schema, nor its Avro or its JSON Schema could say it.
        raise SchemaError(f"the default of column {name!r} ({column.word}) must be a finite number")
    return Column(column.name, dtype, column.nullable, length, column.comment, default)


def _check_names(columns: Sequence[Column], primary_key: Sequence[str], time: str | None) -> None:
    names = [each.name for each in columns]
    if not names:
        raise SchemaError("a schema needs a column")
    _refuse_repeated(names, "column")
    _refuse_repeated(primary_key, "column of the primary key")
    by_name = {each.name: each for each in columns}
    for name in (*primary_key, *(() if time is None else (time,))):
        if name not in by_name:
            role = "primary key" if name in primary_key else "event time"
            raise SchemaError(f"the {role} names the column {name!r}; the columns are {', '.join(names)}")
    for name in primary_key:
        dtype = by_name[name].dtype
        if not can_be_key(dtype):
            raise SchemaError(
                f"column {name!r} ({type_word(dtype)}) cannot be in the primary key: equal keys of such a type may "
                "have different bytes"
            )
    if time is not None:
        dtype = by_name[time].dtype
        if not (pa.types.is_timestamp(dtype) or dtype in (pa.date32(), pa.int64())):
            raise SchemaError(
                f"column {time!r} ({type_word(dtype)}) cannot be the event time; a TIMESTAMP, a TIMESTAMP_LTZ, a DATE or "
                "a BIGINT with milliseconds can"
            )


def _refuse_repeated(names: Collection[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SchemaError(f"the {what} {name!r} is there twice")
        seen.add(name)


def _infer_type(values: Sequence[Any]) -> pa.DataType:
    try:
        return column_type(pa.array(values).type)
    except (SchemaError, pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.string()
