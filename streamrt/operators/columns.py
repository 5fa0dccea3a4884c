"""Operators on columns, and functions on columns for `Apply` and `Update`.

They are plain data, so a topology with them can be pickled, compared and drawn.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.common.copies import deep_copy
from streamrt.errors import ColumnTypeError, MissingColumnError
from streamrt.operators.expression import Expression, without_columns
from streamrt.state.spec import StoreSpec
from streamrt.topology import InlinedCode, Operator

_SET_COLUMN = """
try:
    value[{column}] = result
except TypeError as error:
    raise {explain}(value) from error
"""


@dataclass(frozen=True)
class Assign(Operator):
    """Sets a column to the result of an expression on the value: `sdf["column"] = ...`."""

    name: ClassVar[str] = "assign"
    in_place: ClassVar[bool] = True
    passes_on_last: ClassVar[bool] = True
    column: Any
    expression: Expression

    def inline(self, code: InlinedCode) -> bool:  # noqa: D102
        self.expression.add_evaluation(code)
        explain = code.name_object(lambda value: _not_columnar(value, f"set column {self.column!r}"))
        code.add_lines(_SET_COLUMN.format(column=code.name_object(self.column), explain=explain))
        return True

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:  # noqa: D102
        return self.column not in columns

    def describe(self) -> str:  # noqa: D102
        return f"{self.column} = {self.expression}"

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return self.expression.stores()


@dataclass(frozen=True)
class Compute(Operator):
    """Replaces each value by the result of an expression on it.

    Example:
        >>> from streamrt.operators.expression import Column
        >>> Compute(Column("price")).describe()
        'price'
    """

    name: ClassVar[str] = "compute"
    passes_on_last: ClassVar[bool] = True
    expression: Expression

    def inline(self, code: InlinedCode) -> bool:  # noqa: D102
        self.expression.add_evaluation(code)
        code.add_lines("value = result")
        return True

    def describe(self) -> str:  # noqa: D102
        return str(self.expression)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return self.expression.stores()


@dataclass(frozen=True)
class Where(Operator):
    """Passes on the values for which an expression is true: `sdf[sdf["column"] > 1]`."""

    name: ClassVar[str] = "where"
    passes_on_last: ClassVar[bool] = True
    expression: Expression

    def inline(self, code: InlinedCode) -> bool:  # noqa: D102
        self.expression.add_evaluation(code)
        code.open_block("if result:")
        return True

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:  # noqa: D102
        return True

    def describe(self) -> str:  # noqa: D102
        return str(self.expression)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return self.expression.stores()


@dataclass(frozen=True)
class Project:
    """Keeps some columns: `sdf[["a", "b"]]`. A function for `Apply`.

    Example:
        >>> Project(("a",))({"a": 1, "b": 2})
        {'a': 1}
    """

    columns: tuple[Any, ...]

    def __call__(self, value: Any) -> dict[Any, Any]:
        """Return the chosen columns."""
        try:
            return {column: value[column] for column in self.columns}
        except KeyError as error:
            raise _make_missing_error(value, error.args[0]) from None
        except (TypeError, IndexError) as error:
            raise _not_columnar(value, f"read columns {list(self.columns)!r}") from error

    def __str__(self) -> str:
        return ", ".join(map(str, self.columns))


@dataclass(frozen=True)
class Drop:
    """Deletes columns in place. A function for `Update`.

    Example:
        >>> value = {"a": 1, "b": 2}
        >>> Drop(("a",))(value)
        >>> value
        {'b': 2}
    """

    columns: tuple[Any, ...]
    ignore_missing: bool = False

    def __call__(self, value: Any) -> None:
        """Delete the columns."""
        for column in self.columns:
            try:
                del value[column]
            except KeyError:
                if not self.ignore_missing:
                    raise _make_missing_error(value, column) from None
            except (TypeError, IndexError) as error:
                raise _not_columnar(value, f"drop column {column!r}") from error

    def __str__(self) -> str:
        return "drop " + ", ".join(map(str, self.columns))


@dataclass(frozen=True)
class Fill:
    """Adds missing columns and replaces None, in place. A function for `Update`.

    A value without columns, such as that of a tombstone, stays unchanged.

    Attributes:
        defaults: pairs of a column and the value that replaces a missing column or None.

    Example:
        >>> value = {"a": None}
        >>> Fill((("a", 0), ("b", None)))(value)
        >>> value
        {'a': 0, 'b': None}
    """

    defaults: tuple[tuple[str, Any], ...]

    def __call__(self, value: Any) -> None:
        """Fill the columns."""
        if not isinstance(value, MutableMapping):
            return
        for column, default in self.defaults:
            if value.get(column) is None:
                value[column] = deep_copy(default)

    def __str__(self) -> str:
        return "fill " + ", ".join(column for column, _ in self.defaults)


def column_of(value: Any, column: Any) -> Any:
    """Return a column of a value.

    Raises:
        MissingColumnError: if the value lacks the column.
        ColumnTypeError: if the type of the value has no columns.
    """
    try:
        return value[column]
    except KeyError:
        raise _make_missing_error(value, column) from None
    except (TypeError, IndexError) as error:
        raise _not_columnar(value, f"read column {column!r}") from error


def _make_missing_error(value: Any, column: Any) -> Exception:
    return MissingColumnError(column, tuple(value) if hasattr(value, "keys") else ())


def _not_columnar(value: Any, wish: str) -> Exception:
    needed = "" if value is None else ", columns need a dict"
    return ColumnTypeError(f"cannot {wish}: {without_columns(value)}{needed}")
