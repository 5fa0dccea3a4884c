"""Columns, and the check of rows that have them."""

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamrt.errors import SchemaMismatchError
from streamrt.schema.row_lines import ColumnLines, compile_row_check, find_test
from streamrt.schema.types import quoted, type_word
from streamrt.schema.values import Check, ValueMismatchError, check_for, text_of

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
        convert: what values of a column are made of those that are given, by name of the column, before they are checked;
            values of the column's own type stay as they are.

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
        self._from_json, self._decoded = from_json, decoded
        self._convert = convert or {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "mapping"}

    def __call__(self, row: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        """Check a row: a mapping, or a list or tuple with a value for each column."""
        if isinstance(row, Mapping):
            return self.mapping(row)
        if not isinstance(row, (list, tuple)):
            raise SchemaMismatchError(f"a row must be a mapping, a list or a tuple, not {type(row).__name__}")
        if len(row) != len(self._lines):
            raise SchemaMismatchError(f"{len(row)} values for {len(self._lines)} columns")
        return self.mapping(dict(zip(self._columns, row, strict=True)))

    @functools.cached_property
    def mapping(self) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """The function that checks a row that is a mapping; it is compiled on first use."""
        return compile_row_check(self._lines, NO_DEFAULT, self._check_each, ignores_others=self._ignores_others)

    @functools.cached_property
    def _lines(self) -> list[ColumnLines]:
        """The code that checks each column, made on first use: earlier schemas of a table never check a row."""
        return [
            _lines_of(each, self._from_json, self._decoded, self._convert.get(name))
            for name, each in self._columns.items()
        ]

    @property
    def _ignores_others(self) -> bool:
        return self._from_json or self._decoded

    def _check_each(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Check a row column by column."""
        checked: dict[str, Any] = {}
        missing = 0
        name = ""
        try:
            for column in self._lines:
                name = column.name
                value = row.get(name, NO_DEFAULT)
                if value is None and column.nullable:
                    checked[name] = None
                elif value is not NO_DEFAULT:
                    checked[name] = column.convert(value)
                elif column.defaults:
                    missing += 1
                    checked[name] = column.defaults[0]
                else:
                    raise SchemaMismatchError(f"column {name!r} is missing, and it must not be null")
        except ValueMismatchError as misfit:
            word = self._columns[name].word
            raise SchemaMismatchError(f"column {name + misfit.path!r} ({word}) must be {misfit.rule}") from None
        if not self._ignores_others and len(row) + missing != len(checked):
            unknown = sorted(repr(name) for name in row if name not in checked)
            raise SchemaMismatchError(f"there is no column {unknown[0]}; the columns are {', '.join(self._columns)}")
        return checked


def _lines_of(column: Column, from_json: bool, decoded: bool, convert: Check | None) -> ColumnLines:
    check = column_check(column, from_json)
    if convert is not None:
        check = _convert_first(convert, check)
    test, exact = find_test(column.dtype, column.length, from_json=from_json, decoded=decoded)
    default = None if column.default is NO_DEFAULT and column.nullable else column.default
    return ColumnLines(column.name, test, exact, check, column.nullable, () if default is NO_DEFAULT else (default,))


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


def _write_literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
