"""Functions of `Aggregate`, which combine the value of a column with that of the present row."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from streamrt.errors import SchemaMismatchError
from streamrt.tables.descriptions.maintenance import Function, ListAgg

if TYPE_CHECKING:
    # With pyarrow, which programs without tables do not wait for.
    from streamrt.schema import Column

__all__ = ["DEFAULT_FUNCTION", "Combine", "is_higher", "make_aggregate"]

Combine = Callable[[Any, Any], Any]
"""Function of the value of the present row, and of that of a request; returns the value of the new row."""

DEFAULT_FUNCTION: Final = "last_value_ignore_nulls"
"""The function of columns that have none."""

# More digits than the exact product of two values of a column has.
_EXACT: Final = decimal.Context(prec=200, traps=[decimal.InvalidOperation])


def make_aggregate(function: Function, column: Column) -> Combine:
    """Return the function that combines values of a column.

    Nulls are left out by all functions but "last_value": a row does not tell a null that was given from a column that was
    left out, so "first_value" is the first one that is not null. A product of a DECIMAL column is rounded half up
    to its scale.

    Args:
        function: `ListAgg` or one of `AGGREGATES`, which fits the type of the column.
        column: the column.

    Raises:
        ConfigurationError: if the library for bitmaps is not installed.

    Example:
        >>> from streamrt.schema import Schema
        >>> total, names = Schema("total BIGINT, names STRING").fields
        >>> make_aggregate("sum", total)(5, 7), make_aggregate("listagg", names)("ann", "bob")
        (12, 'ann,bob')
    """
    if isinstance(function, ListAgg):
        return _leave_nulls_out(_join_texts(function.delimiter))
    if function in ("rbm32", "rbm64"):
        from streamrt.relations.bitmaps import make_union

        return make_union(function, column)
    if function in ("sum", "product"):
        return _leave_nulls_out(_fit_column(_make_arithmetic(function, column), function, column))
    combine = _FUNCTIONS[function]
    return combine if function == "last_value" else _leave_nulls_out(combine)


def is_higher(one: Any, other: Any) -> bool:
    """Return whether a value of a column comes after another one: null before all, and NaN behind all.

    Args:
        one: the first value.
        other: a value of the same column.

    Example:
        >>> is_higher(2, 1), is_higher(1, None), is_higher(None, None)
        (True, True, False)
    """
    if one is None or other is None:
        return one is not None and other is None
    if isinstance(one, float) and (math.isnan(one) or math.isnan(other)):
        return math.isnan(one) and not math.isnan(other)
    return bool(one > other)


def _join_texts(delimiter: str) -> Combine:
    return lambda present, given: f"{present}{delimiter}{given}"


_FUNCTIONS: Final[dict[str, Combine]] = {
    "min": lambda present, given: given if is_higher(present, given) else present,
    "max": lambda present, given: given if is_higher(given, present) else present,
    "first_value": lambda present, given: present,
    "first_value_ignore_nulls": lambda present, given: present,
    "last_value": lambda present, given: given,
    "last_value_ignore_nulls": lambda present, given: given,
    "listagg": _join_texts(","),
    "bool_and": lambda present, given: present and given,
    "bool_or": lambda present, given: present or given,
}


def _make_arithmetic(function: str, column: Column) -> Combine:
    import pyarrow as pa

    if pa.types.is_decimal128(column.dtype):
        step = decimal.Decimal(1).scaleb(-column.dtype.scale)
        exact = _EXACT.add if function == "sum" else _EXACT.multiply
        return lambda present, given: exact(present, given).quantize(step, decimal.ROUND_HALF_UP, _EXACT)
    if function == "sum":
        return lambda present, given: present + given
    return lambda present, given: present * given


def _leave_nulls_out(combine: Combine) -> Combine:
    def run(present: Any, given: Any) -> Any:
        if given is None:
            return present
        return given if present is None else combine(present, given)

    return run


def _fit_column(combine: Combine, function: str, column: Column) -> Combine:
    """Return the function, which refuses a result that the column cannot keep."""
    from streamrt.schema.columns import column_check
    from streamrt.schema.values import ValueMismatchError

    check = column_check(column)

    def run(present: Any, given: Any) -> Any:
        try:
            kept = check(combine(present, given))
        except ValueMismatchError as misfit:
            raise SchemaMismatchError(
                f"the {function} of column {column.name!r} ({column.word}) would not be {misfit.rule}"
            ) from None
        if isinstance(kept, float) and not math.isfinite(kept):
            raise SchemaMismatchError(f"the {function} of column {column.name!r} ({column.word}) would not be finite")
        return kept

    return run
