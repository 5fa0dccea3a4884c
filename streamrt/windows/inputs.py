"""Inputs: what aggregations read of a record's value, extracted once for each record.

Without `where`, the input is the value or its column. With it, the input of a record that does not count is None, so an
aggregation that skips None needs nothing else; for others, which take None as a value, inputs that count are in a list.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal

from streamrt.errors import ArgumentTypeError, ArgumentValueError, ColumnTypeError, MissingColumnError
from streamrt.operators.expression import Expression, Input, without_columns

__all__ = ["Condition", "Missing", "NaN", "Pick", "Where", "checked_where", "extractor_of", "name_condition"]

_LONGEST_NAME: Final = 60

Missing = Literal["raise", "ignore"]
"""How an aggregation treats a value without its column."""

NaN = Literal["ignore", "highest"]
"""What NaN is to aggregations that choose: not a value, or one above all other numbers."""

Condition = Callable[[Any], Any] | Expression
"""Decides about a record's value whether it counts."""

Where = Callable[[Any], Any] | Any
"""What users give for a condition: a function of the value, or a series such as `sdf["price"] < 100`."""


@dataclass(frozen=True, eq=False)
class Pick:
    """What an aggregation reads of a value.

    Attributes:
        column: a column; None for the whole value.
        missing: what becomes of a value without it.
        where: the condition of the values that count; None for all.
        boxed: whether None is a value, so that the input of a record that counts is a list of one item.
        by: another column; the input is then a list of both.
    """

    column: str | None = None
    missing: Missing = "raise"
    where: Condition | None = None
    boxed: bool = False
    by: str | None = None

    @property
    def key(self) -> Hashable:
        """What equal picks share. Conditions may hold objects that cannot be compared."""
        return self.column, self.missing, id(self.where), self.boxed, self.by


def checked_where(name: str, where: Where | None) -> Condition | None:
    """Return a condition in the form that definitions keep.

    Args:
        name: name of the argument, for errors.
        where: what the user gave.

    Raises:
        ArgumentTypeError: if it is neither a function nor a series.
        ArgumentValueError: if the series needs more of a record than its value.
    """
    expression = getattr(where, "expression", where)
    if isinstance(expression, Expression):
        if expression.stores() or not _reads_value_only(expression):
            raise ArgumentValueError(
                f"{name} sees only the value of a record, and this series uses {expression}: assign the series to a column "
                "before the window, and use that column"
            )
        return expression
    if where is not None and not callable(where):
        raise ArgumentTypeError(
            f"{name} is a function of the value, such as lambda value: value['price'] < 100, or a series, such as "
            f"sdf['price'] < 100; got {type(where).__name__}"
        )
    condition: Condition | None = where
    return condition


def _reads_value_only(expression: Expression) -> bool:
    if isinstance(expression, Input) and expression.name != "value":
        return False
    return all(map(_reads_value_only, expression.parts()))


def name_condition(where: Condition | None) -> str:
    """Return what names of states say of a condition.

    Only expressions of columns and constants have a text that is the same in each process.

    Example:
        >>> name_condition(None), name_condition(bool)
        ('', ' where')
    """
    if where is None:
        return ""
    text = f" where {where}" if isinstance(where, Expression) and where.is_plain() else " where"
    # The name may be in the state of each key.
    return text if len(text) <= _LONGEST_NAME else f" where {sha256(text.encode()).hexdigest()[:12]}"


def extractor_of(pick: Pick) -> Callable[[Any], Any] | None:
    """Return the function from a record's value to the input; None if that is the value itself.

    The function raises `MissingColumnError` if the value lacks the column, and that is not ignored, and `ColumnTypeError`
    if the value has no columns.
    """
    if pick.column is None and pick.where is None and pick.by is None:
        return None

    def read(value: Any) -> Any:
        found = _read_column(value, pick.column, pick.missing)
        return found if pick.by is None else [found, _read_column(value, pick.by, pick.missing)]

    where, boxed = pick.where, pick.boxed
    if where is None:
        return read
    counts = _compile_condition(where) if isinstance(where, Expression) else where
    if boxed:
        return lambda value: [read(value)] if counts(value) else None
    return lambda value: read(value) if counts(value) else None


def _compile_condition(where: Expression) -> Callable[[Any], Any]:
    evaluate = where.compile()
    return lambda value: evaluate(value, None, 0, None)


def _read_column(value: Any, column: str | None, missing: Missing) -> Any:
    if column is None:
        return value
    try:
        return value[column] if missing == "raise" else value.get(column)
    except KeyError:
        error = MissingColumnError(column, tuple(value) if hasattr(value, "keys") else ())
        error.advice = "; if values may lack it, aggregate with missing='ignore'"
        raise error from None
    except (AttributeError, TypeError, IndexError):
        needed = "" if value is None else ", columns need a dict"
        raise ColumnTypeError(f"cannot aggregate column {column!r}: {without_columns(value)}{needed}") from None
