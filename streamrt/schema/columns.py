"""Columns, and the check of rows that have them."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamrt.errors import SchemaMismatchError
from streamrt.schema.types import quoted, type_word
from streamrt.schema.values import Check, MisfitError, check_for, text_of

__all__ = ["COLUMN_KEYS", "NO_DEFAULT", "Column", "RowCheck", "column_check"]


class _Missing(enum.Enum):
    NO_DEFAULT = "no default"


NO_DEFAULT: Any = _Missing.NO_DEFAULT
"""The default of a column that has none; None is a default, too."""

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
            parts.append(f"DEFAULT {_literal(self.default)}")
        if self.comment is not None:
            parts.append(f"COMMENT {_literal(self.comment)}")
        return " ".join(parts)


class RowCheck:
    """Returns rows with their columns in order, and each value as its column keeps it.

    Args:
        columns: the columns.
        from_json: whether rows come from JSON; what it has beside the columns is then left out.

    Raises:
        SchemaMismatchError: if a row does not fit.
    """

    def __init__(self, columns: Sequence[Column], from_json: bool = False) -> None:
        self._columns = {each.name: each for each in columns}
        self._checks = [(each.name, column_check(each, from_json), _missing(each)) for each in columns]
        self._ignores_others = from_json

    def __call__(self, row: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        """Check a row: a mapping, or a list or tuple with a value for each column."""
        if isinstance(row, Mapping):
            return self._check_mapping(row)
        if not isinstance(row, (list, tuple)):
            raise SchemaMismatchError(f"a row must be a mapping, a list or a tuple, not {type(row).__name__}")
        if len(row) != len(self._checks):
            raise SchemaMismatchError(f"{len(row)} values for {len(self._checks)} columns")
        return {
            name: self._checked(name, check, value) for (name, check, _), value in zip(self._checks, row, strict=True)
        }

    def _check_mapping(self, row: Mapping[str, Any]) -> dict[str, Any]:
        checked: dict[str, Any] = {}
        missing = 0
        for name, check, default in self._checks:
            value = row.get(name, NO_DEFAULT)
            if value is NO_DEFAULT:
                if default is NO_DEFAULT:
                    raise SchemaMismatchError(f"column {name!r} is missing, and it must not be null")
                missing += 1
                checked[name] = default
            else:
                checked[name] = self._checked(name, check, value)
        if not self._ignores_others and len(row) + missing != len(checked):
            unknown = sorted(repr(name) for name in row if name not in checked)
            raise SchemaMismatchError(f"there is no column {unknown[0]}; the columns are {', '.join(self._columns)}")
        return checked

    def _checked(self, name: str, check: Check, value: Any) -> Any:
        try:
            return check(value)
        except MisfitError as misfit:
            word = self._columns[name].word
            raise SchemaMismatchError(f"column {name + misfit.path!r} ({word}) must be {misfit.rule}") from None


def column_check(column: Column, from_json: bool = False) -> Check:
    """Return the check for values of a column, None among them."""
    is_text = column.dtype == pa.string()
    inner = text_of(column.length, from_json) if is_text else check_for(column.dtype, from_json)

    def check(value: Any) -> Any:
        if value is not None:
            return inner(value)
        if column.nullable:
            return None
        raise MisfitError("not null")

    return check


def _missing(column: Column) -> Any:
    """Return the value of rows that do not give one."""
    if column.default is NO_DEFAULT and column.nullable:
        return None
    return column.default


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
