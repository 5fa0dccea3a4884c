"""Aggregators that choose: whether all or any values are true, any value, and the value next to the lowest or highest one."""

from operator import gt, lt
from typing import Any, get_args

from streamrt.arguments import checked_choice
from streamrt.errors import ArgumentTypeError
from streamrt.windows.aggregator import BuiltIn
from streamrt.windows.arrivals import First
from streamrt.windows.extremes import compare_with_nan
from streamrt.windows.fold import Fold, Packing
from streamrt.windows.inputs import Missing, NaN, Where

__all__ = ["AnyValue", "BoolAnd", "BoolOr", "MaxBy", "MinBy"]


class _Bools(BuiltIn):
    """Counts the values that are not None, and those of them that are true."""

    def _make_fold(self) -> Fold:
        finish = self._finish

        def initial(packing: Packing) -> Any:
            return [0, 0]

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            return state if value is None else [state[0] + bool(value), state[1] + 1]

        def retract(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            return state if value is None else [state[0] - bool(value), state[1] - 1]

        def result(state: Any, packing: Packing) -> Any:
            return finish(*state) if state[1] else None

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            return [a[0] + b[0], a[1] + b[1]]

        return Fold(initial, step, result, merge, retract=retract)

    def _finish(self, true: int, count: int) -> bool:
        raise AssertionError


class BoolAnd(_Bools):
    """Whether all values that are not None are true; None without values.

    Example:
        >>> ready = BoolAnd("ready")
        >>> ready.result(ready.agg(ready.initialize(), {"ready": False}, 0))
        False
    """

    def _finish(self, true: int, count: int) -> bool:
        return true == count


class BoolOr(_Bools):
    """Whether a value that is not None is true; None without values.

    Example:
        >>> failed = BoolOr("failed")
        >>> failed.result(failed.agg(failed.initialize(), {"failed": True}, 0))
        True
    """

    def _finish(self, true: int, count: int) -> bool:
        return true > 0


class AnyValue(First):
    """One of the values that are not None; None without values. Of a stream, it is the first one.

    Example:
        >>> name = AnyValue("name")
        >>> name.result(name.agg(name.initialize(), {"name": "ann"}, 0))
        'ann'
    """


class _By(BuiltIn):
    """Keeps the value of one column where another one is lowest or highest: `[value, other]`."""

    _better: Any

    def __init__(
        self,
        column: str | None = None,
        by: str = "",
        missing: Missing = "raise",
        *,
        nan: NaN = "ignore",
        where: Where | None = None,
    ) -> None:
        super().__init__(column, missing, where=where)
        self.nan = checked_choice(f"{type(self).__name__}(nan=...)", nan, get_args(NaN))
        if not isinstance(by, str) or not by:
            name = type(self).__name__
            raise ArgumentTypeError(
                f"{name}(by=...) is the name of a column, such as {name}('name', by='price'); got {by!r}"
            )
        self.by = by

    @property
    def state_suffix(self) -> str:
        return f"{super().state_suffix} by {self.by}"

    def __repr__(self) -> str:
        column = "" if self.column is None else f"{self.column!r}, "
        return f"{type(self).__name__}({column}by={self.by!r})"

    def _make_fold(self) -> Fold:
        better, counts = self._better, counts_by
        if self.nan == "highest":
            better, counts = compare_with_nan(better), counts_by_any

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            if not counts(value):
                return state
            if state is None or better(value[1], packing.unpack(state[1])):
                return [packing.pack(value[0]), packing.pack(value[1])]
            return state

        def result(state: Any, packing: Packing) -> Any:
            return None if state is None else packing.unpack(state[0])

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            if a is None or b is None:
                return b if a is None else a
            return b if better(packing.unpack(b[1]), packing.unpack(a[1])) else a

        return Fold(lambda packing: None, step, result, merge)


class MinBy(_By):
    """The value of a column, or the whole value, where another column is lowest; of several, the one that arrived first.

    Values whose other column is None or NaN do not count. The result may be None, which is the value of the column there.

    Args:
        column: name of the column of the result; None for the whole value.
        by: name of the column whose lowest value decides.
        missing: what becomes of a value without one of the columns: "raise", or "ignore" it like None.
        nan: "ignore", or "highest": whether NaN in the other column is above all other numbers.
        where: condition of the values that count.

    Example:
        >>> cheapest = MinBy("name", by="price")
        >>> state = cheapest.initialize()
        >>> for row in ({"name": "a", "price": 5}, {"name": "b", "price": 3}):
        ...     state = cheapest.agg(state, row, 0)
        >>> cheapest.result(state)
        'b'
    """

    _better = lt


class MaxBy(_By):
    """The value of a column, or the whole value, where another column is highest; as `MinBy` in all else.

    Example:
        >>> best = MaxBy(by="points")
        >>> best.result(best.agg(best.initialize(), {"name": "ann", "points": 5}, 0))
        {'name': 'ann', 'points': 5}
    """

    _better = gt


def counts_by_any(value: Any) -> bool:
    """Return whether an input of two columns counts: its second one is not None."""
    return value is not None and value[1] is not None


def counts_by(value: Any) -> bool:
    """Return whether an input of two columns counts: its second one is neither None nor NaN."""
    return value is not None and value[1] is not None and value[1] == value[1]
