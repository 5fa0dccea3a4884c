"""Columns, and the check of rows that have them."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from streamrt.errors import SchemaMismatchError
from streamrt.schema.types import quoted, type_word
from streamrt.schema.values import EXACT, Check, ValueMismatchError, check_for, text_of

__all__ = ["COLUMN_KEYS", "NO_DEFAULT", "Column", "RowCheck", "column_check"]


class _Missing(enum.Enum):
    NO_DEFAULT = "no default"


NO_DEFAULT: Any = _Missing.NO_DEFAULT
"""The default of a column that has none; None is also a default."""

COLUMN_KEYS = ("name", "type", "nullable", "length", "comment", "default")


@dataclass(frozen=True)
class Column:
    """A column of a schema.

    Args:
        name: name.
        dtype: type, one of those that `column_type` returns.
        nullable: whether values may be None.
        length: longest text, in characters; None where there is no limit.
        comment: what the column means.
        default: value of rows that do not give one.
    """

    name: str
    dtype: pa.DataType
    nullable: bool = True
    length: int | None = None
    comment: str | None = None
    default: Any = NO_DEFAULT

    @property
    def word(self) -> str:
        """The type, as a DDL text says it."""
        return type_word(self.dtype) if self.length is None else f"VARCHAR({self.length})"

    def as_dict(self) -> dict[str, Any]:
        """Return the column as a mapping; `Schema` takes it back."""
        described = {
            "name": self.name,
            "type": self.word,
            "nullable": self.nullable,
            "length": self.length,
            "comment": self.comment,
        }
        return described if self.default is NO_DEFAULT else {**described, "default": self.default}

    def __str__(self) -> str:
        parts = [quoted(self.name), self.word]
        if not self.nullable:
            parts.append("NOT NULL")
        if self.default is not NO_DEFAULT:
            parts.append(f"DEFAULT {_write_literal(self.default)}")
        if self.comment is not None:
            parts.append(f"COMMENT {_write_literal(self.comment)}")
        return " ".join(parts)


class RowCheck:
    """Returns rows with their columns in order, and each value as its column keeps it.

    Args:
        columns: the columns.
        from_json: whether rows come from JSON; what it has in addition to the columns is then left out.
        decoded: whether a reader of bytes made the rows, so that all strings are those of UTF-8; what they have in
            addition to the columns is left out.
        convert: what values of a column are made of those that are given, by name of the column, before they are checked.

    Raises:
        SchemaMismatchError: if a row does not fit.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        from_json: bool = False,
        *,
        decoded: bool = False,
        convert: Mapping[str, Check] | None = None,
    ) -> None:
        self._columns = {each.name: each for each in columns}
        self._checks = [_compile_column(each, from_json, decoded, (convert or {}).get(each.name)) for each in columns]
        self._ignores_others = from_json or decoded

    def __call__(self, row: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        """Check a row: a mapping, or a list or tuple with a value for each column."""
        if isinstance(row, Mapping):
            return self.mapping(row)
        if not isinstance(row, (list, tuple)):
            raise SchemaMismatchError(f"a row must be a mapping, a list or a tuple, not {type(row).__name__}")
        if len(row) != len(self._checks):
            raise SchemaMismatchError(f"{len(row)} values for {len(self._checks)} columns")
        return self.mapping(dict(zip(self._columns, row, strict=True)))

    def mapping(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Check a row that is a mapping."""
        checked: dict[str, Any] = {}
        missing = 0
        get = row.get
        name = ""
        try:
            # Each call of a function costs as much as all of a column that needs none.
            for name, exact, lowest, highest, check, nullable, default in self._checks:
                value = get(name, NO_DEFAULT)
                kind = type(value)
                if kind is exact or (kind is int and lowest <= value <= highest):
                    checked[name] = value
                elif value is None and nullable:
                    checked[name] = None
                elif value is not NO_DEFAULT:
                    checked[name] = check(value)
                elif default is not NO_DEFAULT:
                    missing += 1
                    checked[name] = default
                else:
                    raise SchemaMismatchError(f"column {name!r} is missing, and it must not be null")
        except ValueMismatchError as misfit:
            word = self._columns[name].word
            raise SchemaMismatchError(f"column {name + misfit.path!r} ({word}) must be {misfit.rule}") from None
        if not self._ignores_others and len(row) + missing != len(checked):
            unknown = sorted(repr(name) for name in row if name not in checked)
            raise SchemaMismatchError(f"there is no column {unknown[0]}; the columns are {', '.join(self._columns)}")
        return checked


class _NoType:
    """The type of no value."""


_Compiled: TypeAlias = tuple[str, type, int, int, Check, bool, Any]
"""Name; the type whose values need no check; the least and the greatest integer that needs none; the check; whether None
is a value; the value of rows that do not give one."""


def _compile_column(column: Column, from_json: bool, decoded: bool, convert: Check | None) -> _Compiled:
    check = column_check(column, from_json)
    exact = EXACT.get(column.dtype, _NoType)
    if column.dtype == pa.string() and decoded and column.length is None:
        exact = str
    if column.dtype == pa.binary() and from_json:
        exact = _NoType
    lowest, highest = 1, 0
    if pa.types.is_integer(column.dtype):
        highest = (1 << (column.dtype.bit_width - 1)) - 1
        lowest = ~highest
    if convert is not None:
        check = _convert_first(convert, check)
    return column.name, exact, lowest, highest, check, column.nullable, _missing_value(column)


def _convert_first(convert: Check, check: Check) -> Check:
    return lambda value: check(convert(value))


def column_check(column: Column, from_json: bool = False) -> Check:
    """Return the check for values of a column, None among them."""
    is_text = column.dtype == pa.string()
    inner = text_of(column.length, from_json) if is_text else check_for(column.dtype, from_json)

    def check(value: Any) -> Any:
        if value is not None:
            return inner(value)
        if column.nullable:
            return None
        raise ValueMismatchError("not null")

    return check


def _missing_value(column: Column) -> Any:
    """Return the value of rows that do not give one."""
    if column.default is NO_DEFAULT and column.nullable:
        return None
    return column.default


def _write_literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
