"""DDL: columns as in `CREATE TABLE`, in Spark's words. sqlglot reads them."""

import decimal
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamrt.common.suggestions import suggest_name
from streamrt.errors import SchemaError
from streamrt.schema.quiet import quiet_sqlglot
from streamrt.schema.types import SCALARS, is_utf8

__all__ = ["parse_columns", "parse_type"]

_TYPE = re.compile(r"(?:^|,)\s*\w+\s+([A-Za-z]+)")
_TYPES = (*SCALARS, "ARRAY", "CHAR", "DECIMAL", "MAP", "NUMERIC", "STRUCT", "VARCHAR")
_LONGEST = 100_000
"""Characters of a text. Longer ones are not schemas, and reading them takes long."""
_KEPT = 1_000
"""Types that need not be read again: catalogues are read often."""
_REQUIRED = "\x01not null"
"""Name of the one field of the struct that stands for an element that is never null."""

_OPEN = ("LT", "L_PAREN")
_CLOSED = ("GT", "R_PAREN")


def parse_columns(text: str) -> tuple[Sequence[Mapping[str, Any]], tuple[str, ...]]:
    """Return the columns of a text, a mapping for each, and the names in its primary key.

    Raises:
        SchemaError: if it cannot be read as columns.
    """
    from sqlglot import exp

    columns: list[dict[str, Any]] = []
    primary_key: list[str] = []
    for part in _parse_columns(text):
        if isinstance(part, exp.ColumnDef):
            columns.append(_read_column(part, primary_key))
        elif isinstance(part, exp.PrimaryKey):
            if primary_key:
                raise SchemaError(f"the schema {_shorten_text(text)} has two primary keys")
            primary_key += [each.name for each in part.expressions]
        else:
            raise SchemaError(
                f"the schema {_shorten_text(text)} has {_shorten_text(part.sql('spark'))}, which is not a column"
            )
    return columns, tuple(primary_key)


@functools.lru_cache(_KEPT)
def parse_type(word: str, where: str) -> tuple[pa.DataType, int | None]:
    """Return the type that a word means, and the longest text if it says one.

    Args:
        word: such as `BIGINT`, `varchar(20)` or `ARRAY<STRING>`.
        where: what has the type, for the error.

    Raises:
        SchemaError: if it is not a type.
    """
    scalar = SCALARS.get(word.strip().upper())
    if scalar is not None:
        return scalar, None
    from sqlglot import exp

    parts = _parse_columns(f"c {word}")
    if len(parts) != 1 or not isinstance(parts[0], exp.ColumnDef) or parts[0].args.get("constraints"):
        raise SchemaError(f"{where} has the type {_shorten_text(word)}, which is not a type")
    return _read_type(parts[0].args.get("kind"), where)


def _parse_columns(text: str) -> Sequence[Any]:
    import sqlglot
    from sqlglot import exp

    if len(text) > _LONGEST:
        raise SchemaError(f"a schema of {len(text)} characters is too long; {_LONGEST} may be")
    if not is_utf8(text):
        raise SchemaError(f"the schema {_shorten_text(text)} has characters that UTF-8 cannot hold")
    try:
        with quiet_sqlglot():
            statements = sqlglot.parse(f"CREATE TABLE t ({_mark_required(text)}\n)", dialect="spark")
    except sqlglot.errors.ParseError as error:
        reason = error.errors[0].get("description", "it cannot be read") if error.errors else "it cannot be read"
        raise SchemaError(
            f"the schema {_shorten_text(text)} cannot be read as columns: {_unknown_type(text) or str(reason).rstrip('.')}"
        ) from None
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError):
        raise SchemaError(f"the schema {_shorten_text(text)} cannot be read as columns") from None
    statement = statements[0] if len(statements) == 1 else None
    # Whatever else a statement may have was smuggled in behind a parenthesis.
    plain = isinstance(statement, exp.Create) and {k for k, v in statement.args.items() if v} <= {
        "this",
        "kind",
        "exists",
    }
    if statement is None or not plain or not isinstance(statement.this, exp.Schema):
        raise SchemaError(f"the schema {_shorten_text(text)} cannot be read as columns")
    parts: Sequence[Any] = statement.this.expressions
    return parts


def _mark_required(text: str) -> str:
    """Return a DDL text in which each element that is never null is a struct with one field, `_REQUIRED`.

    sqlglot does not read `NOT NULL` behind the elements of lists and maps, as in `ARRAY<INT NOT NULL>`.

    Example:
        >>> _mark_required("a ARRAY<INT NOT NULL>") == f"a ARRAY<STRUCT<`{_REQUIRED}`: INT >>"
        True
    """
    if "<" not in text or "null" not in text.lower():
        return text
    import sqlglot

    try:
        tokens = sqlglot.tokenize(text, dialect="spark")
    except sqlglot.errors.SqlglotError:
        # Whoever parses the text says what is wrong.
        return text
    parts = []
    done = 0
    for begin, end, instead in sorted(_find_changes(tokens)):
        parts += [text[done:begin], instead]
        done = end
    return "".join([*parts, text[done:]])


def _find_changes(tokens: list[Any]) -> list[tuple[int, int, str]]:
    """Return which characters are replaced: their begin, their end, and by what."""
    changes: list[tuple[int, int, str]] = []
    # Of each bracket that is open: whether there are elements in it, and where the present one begins.
    brackets: list[tuple[bool, int]] = []
    for number, token in enumerate(tokens):
        kind = token.token_type.name
        if kind in _OPEN:
            has_elements = kind == "LT" and number > 0 and tokens[number - 1].text.upper() in ("ARRAY", "MAP")
            brackets.append((has_elements, token.end + 1))
        elif brackets and kind in (*_CLOSED, "COMMA"):
            has_elements, begin = brackets.pop()
            last = tokens[number - 2 : number]
            if has_elements and [each.token_type.name for each in last] == ["NOT", "NULL"]:
                changes += [(begin, begin, f"STRUCT<`{_REQUIRED}`: "), (last[0].start, last[1].end + 1, ">")]
            if kind == "COMMA":
                brackets.append((has_elements, token.end + 1))
    return changes


def _unknown_type(text: str) -> str | None:
    """Return a sentence about the first type of a column that is unknown, with the nearest known one."""
    for word in _TYPE.findall(text):
        if word.upper() not in _TYPES:
            return f"there is no type {word}{suggest_name(word, _TYPES)}"
    return None


def _read_column(part: Any, primary_key: list[str]) -> dict[str, Any]:
    from sqlglot import exp

    name = part.name
    dtype, length = _read_type(part.args.get("kind"), f"column {name!r}")
    column: dict[str, Any] = {"name": name, "type": dtype}
    if length is not None:
        column["length"] = length
    for constraint in part.args.get("constraints") or ():
        kind = constraint.args.get("kind")
        if isinstance(kind, exp.NotNullColumnConstraint):
            column["nullable"] = bool(kind.args.get("allow_null"))
        elif isinstance(kind, exp.CommentColumnConstraint):
            column["comment"] = kind.name
        elif isinstance(kind, exp.DefaultColumnConstraint):
            column["default"] = _read_default(kind.this, name)
        elif isinstance(kind, exp.PrimaryKeyColumnConstraint):
            primary_key.append(name)
        else:
            raise SchemaError(
                f"column {name!r} has {_shorten_text(constraint.sql('spark'))}, which schemas do not have"
            )
    return column


def _read_default(literal: Any, name: str) -> Any:
    from sqlglot import exp

    if isinstance(literal, exp.Null):
        return None
    if isinstance(literal, exp.Boolean):
        return bool(literal.this)
    sign = ""
    if isinstance(literal, exp.Neg):
        sign, literal = "-", literal.this
    if isinstance(literal, exp.HexString) and not sign:
        try:
            return bytes.fromhex(literal.name)
        except ValueError:
            raise SchemaError(f"the default of column {name!r} has no whole bytes") from None
    if not isinstance(literal, exp.Literal) or (sign and literal.is_string):
        raise SchemaError(f"the default of column {name!r} must be a literal")
    if literal.is_string:
        return literal.name
    number = sign + literal.name
    return int(number) if literal.is_int else decimal.Decimal(number)


def _read_type(kind: Any, where: str) -> tuple[pa.DataType, int | None]:
    from sqlglot import exp

    if not isinstance(kind, exp.DataType):
        raise SchemaError(f"{where} has no type")
    types = exp.DataType.Type
    scalars = {
        types.BOOLEAN: "BOOLEAN",
        types.TINYINT: "TINYINT",
        types.SMALLINT: "SMALLINT",
        types.INT: "INT",
        types.BIGINT: "BIGINT",
        types.FLOAT: "FLOAT",
        types.DOUBLE: "DOUBLE",
        types.TEXT: "STRING",
        types.DATE: "DATE",
        types.TIME: "TIME",
        # In Spark's own words a TIMESTAMP has a time zone.
        types.TIMESTAMPTZ: "TIMESTAMP",
        types.TIMESTAMPNTZ: "TIMESTAMP",
        types.TIMESTAMPLTZ: "TIMESTAMP_LTZ",
    }
    if kind.this in scalars and not kind.expressions:
        return SCALARS[scalars[kind.this]], None
    if kind.this in (types.BINARY, types.VARBINARY):
        sizes = _read_numbers(kind, where, 1)
        return pa.binary(*sizes), None
    if kind.this is types.VARCHAR:
        sizes = _read_numbers(kind, where, 1)
        return pa.string(), sizes[0] if sizes else None
    if kind.this is types.DECIMAL:
        return _read_decimal(_read_numbers(kind, where, 2), where), None
    if kind.this is types.ARRAY and len(kind.expressions) == 1:
        return pa.list_(_read_element(kind.expressions[0], "item", where)), None
    if kind.this is types.MAP and len(kind.expressions) == 2:
        key, value = kind.expressions
        return pa.map_(_read_element(key, "key", where).type, _read_element(value, "value", where)), None
    if kind.this is types.STRUCT and kind.expressions:
        return pa.struct([_read_field(each, where) for each in kind.expressions]), None
    raise SchemaError(f"{where} has the type {_shorten_text(kind.sql('spark'))}, which columns cannot have")


def _read_element(kind: Any, name: str, where: str) -> pa.Field:
    field = pa.field(name, _read_inner_type(kind, where))
    marked = pa.types.is_struct(field.type) and field.type.num_fields == 1 and field.type.field(0).name == _REQUIRED
    return pa.field(name, field.type.field(0).type, False) if marked else field


def _read_inner_type(kind: Any, where: str) -> pa.DataType:
    dtype, length = _read_type(kind, where)
    if length is not None:
        raise SchemaError(f"{where} has a VARCHAR({length}) inside of another type; use STRING there")
    return dtype


def _read_field(part: Any, where: str) -> pa.Field:
    from sqlglot import exp

    if not isinstance(part, exp.ColumnDef):
        raise SchemaError(f"{where} has a STRUCT with a field without a name")
    constraints = [each.args["kind"] for each in part.args.get("constraints") or ()]
    known = (exp.NotNullColumnConstraint, exp.CommentColumnConstraint)
    if not all(isinstance(each, known) for each in constraints):
        raise SchemaError(f"{where} has a STRUCT whose field {part.name!r} has more than a type and NOT NULL")
    required = any(isinstance(each, exp.NotNullColumnConstraint) for each in constraints)
    return pa.field(part.name, _read_inner_type(part.args.get("kind"), where), not required)


def _read_decimal(sizes: Sequence[int], where: str) -> pa.DataType:
    precision, scale = (*sizes, *(10, 0)[len(sizes) :])
    if not 1 <= precision <= 38 or scale > precision:
        raise SchemaError(
            f"{where} has a DECIMAL of {precision} digits, {scale} behind the point; 38 may be, all in all"
        )
    return pa.decimal128(precision, scale)


def _read_numbers(kind: Any, where: str, most: int) -> list[int]:
    texts = [each.name for each in kind.expressions]
    if len(texts) > most or not all(text.isascii() and text.isdecimal() and len(text) < 10 for text in texts):
        raise SchemaError(f"{where} has the type {_shorten_text(kind.sql('spark'))}, which columns cannot have")
    return [int(text) for text in texts]


def _shorten_text(text: str) -> str:
    short = text if len(text) <= 60 else text[:60] + "..."
    return repr(short)
