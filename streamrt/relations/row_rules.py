"""Which columns a captured change gives to the row of its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from streamrt.errors import SchemaMismatchError

if TYPE_CHECKING:
    # With pyarrow, which programs without tables do not wait for.
    from streamrt.schema import Schema

__all__ = ["END_AT", "START_AT", "RowRules", "precedes"]

START_AT: Final = "__START_AT"
END_AT: Final = "__END_AT"
"""Columns of a history: the sequence from which a version is in force, and that from which it no longer is."""


@dataclass(frozen=True)
class RowRules:
    """Makes columns of a table from the columns of a change.

    Attributes:
        schema: schema of the table.
        key: names of the columns that identify a row at its origin.
        columns: names of the columns that changes give, with those of the key.
        ignored: names of the columns that keep their value if a change does not have them.
        ignored_nulls: those of them that keep it also if a change has null.
    """

    schema: Schema
    key: tuple[str, ...]
    columns: tuple[str, ...]
    ignored: frozenset[str] = frozenset()
    ignored_nulls: frozenset[str] = frozenset()

    @property
    def data_columns(self) -> tuple[str, ...]:
        """Names of the columns of a row, without those of a history."""
        return tuple(name for name in self.schema.names if name not in (START_AT, END_AT))

    def make_initial_row(self) -> dict[str, Any]:
        """Return the row of a key before anything is known of it."""
        from streamrt.schema import RowCheck

        fields = [replace(field, nullable=True) for field in self.schema.fields if field.name in self.data_columns]
        return RowCheck(fields, from_json=True)({})

    def make_author(self) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """Return the function that returns the columns that a change sets, as the table keeps their values.

        It raises `SchemaMismatchError` for a value that does not fit.
        """
        from streamrt.schema import RowCheck

        ignored, wanted = self.ignored, frozenset(self.columns)
        fields = [field for field in self.schema.fields if field.name in self.data_columns]
        check = RowCheck(
            [replace(field, nullable=True) if field.name in ignored else field for field in fields], from_json=True
        )
        takes_all = wanted.issuperset(self.data_columns)
        if not ignored:
            if takes_all:
                return check
            return lambda row: check({name: value for name, value in row.items() if name in wanted})
        nulls = self.ignored_nulls

        def author(row: Mapping[str, Any]) -> dict[str, Any]:
            given = {name: value for name, value in row.items() if name in wanted}
            return {
                name: value
                for name, value in check(given).items()
                if name not in ignored or (given.get(name) is not None if name in nulls else name in given)
            }

        return author

    def make_completeness_check(self) -> Callable[[Mapping[str, Any]], None]:
        """Return the function that refuses a row without a column that must not be null."""
        required = [field.name for field in self.schema.fields if not field.nullable and field.name in self.ignored]

        def check(row: Mapping[str, Any]) -> None:
            for name in required:
                if row[name] is None:
                    raise SchemaMismatchError(f"column {name!r} is missing, and it must not be null")

        return check


def precedes(one: Any, other: Any) -> bool:
    """Return whether a sequence comes before another one.

    Args:
        one: the first sequence.
        other: the other.

    Raises:
        SchemaMismatchError: if they cannot be compared.

    Example:
        >>> precedes(1, 2), precedes([1, "b"], [1, "a"])
        (True, False)
    """
    try:
        return bool(one < other)
    except TypeError:
        raise SchemaMismatchError(
            f"the sequences of two changes of a key cannot be compared: they are of types {type(one).__name__} and "
            f"{type(other).__name__}, or their parts differ; sequence_by must give all changes the same types"
        ) from None
