"""Folds of rows that may be taken back: aggregates of tables whose rows change.

Counts, sums and what consists of them take a value back exactly. Extremes and distinct values keep the counted values of
their group next to the head, and find the next extreme at the edge of them. What depends on the order of arrival has no such
form, because rows of a table are in no order.
"""

from collections.abc import Callable
from operator import gt, lt
from typing import Any, Final

from streamrt.errors import InvalidOperationError
from streamrt.state.ordered_bytes import order_bytes
from streamrt.windows.aggregator import pick_of
from streamrt.windows.aggregators import (
    Aggregator,
    Collector,
    Count,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Reduce,
    Sum,
    fold_of,
    is_built_in,
)
from streamrt.windows.choices import AnyValue, MaxBy, MinBy, counts_by, counts_by_any
from streamrt.windows.distinct import CollectSet, CountDistinct
from streamrt.windows.extremes import compare_with_nan
from streamrt.windows.fold import Fold, Packing, unbox
from streamrt.windows.inputs import Pick
from streamrt.windows.sketches import ApproxCountDistinct
from streamrt.windows.sums import EMPTY_SUM, add_number, divide_sum, finish_sum
from streamrt.windows.totals import MappedResult, Total, map_result

__all__ = ["collecting_fold_of", "retracting_fold_of"]

_ORDERED: Final = (First, Last, Earliest, Latest)


def retracting_fold_of(name: str, aggregator: Aggregator) -> tuple[Fold, Pick]:
    """Return the fold of an aggregator for values that may be taken back, and what it reads of values.

    Args:
        name: name of the result, for the error.
        aggregator: the aggregator.

    Raises:
        InvalidOperationError: if the aggregator cannot take values back.
    """
    if isinstance(aggregator, MappedResult) and is_built_in(aggregator):
        fold, pick = retracting_fold_of(name, aggregator.aggregator)
        return map_result(fold, aggregator.function), pick
    if getattr(aggregator, "nan", None) == "highest" and is_built_in(aggregator):
        return _FOLDS_WITH_NAN[type(aggregator)](), pick_of(aggregator)
    if is_built_in(aggregator):
        make = next((_FOLDS[kind] for kind in type(aggregator).__mro__ if kind in _FOLDS), None)
        if make is not None:
            return make(), pick_of(aggregator)
    fold, pick = fold_of(aggregator)
    if fold.retract is None:
        raise InvalidOperationError(f"agg({name}={aggregator!r}) over a table: {_explain(aggregator)}")
    return fold, pick


def _explain(aggregator: Aggregator) -> str:
    kind = type(aggregator).__name__
    if isinstance(aggregator, _ORDERED):
        return f"rows of a table have no order, which {kind} needs; MinBy and MaxBy choose by a column, AnyValue chooses any"
    if isinstance(aggregator, ApproxCountDistinct):
        return "a sketch cannot forget the value of a row that changes; CountDistinct counts exactly"
    if isinstance(aggregator, Reduce):
        return (
            "a row that changes must be taken out of the aggregate, and Reduce has no function for that; derive a class from "
            "Aggregator that has retract(old, value)"
        )
    return f"a row that changes must be taken out of the aggregate: define retract(old, value) in {kind}"


def _make_count() -> Fold:
    return fold_of(Count())[0]._replace(
        retract=lambda state, value, timestamp, packing: state if value is None else state - 1
    )


def _make_sum() -> Fold:
    def initial(packing: Packing) -> Any:
        return list(EMPTY_SUM)

    def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
        return state if value is None else add_number(state, value, 1, packing)

    def retract(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
        return state if value is None else add_number(state, value, -1, packing)

    return Fold(initial, step, finish_sum, retract=retract)


def _make_total() -> Fold:
    return _make_mean()._replace(
        result=lambda state, packing: finish_sum(state[0], packing) if state[1] else None,
    )


def _make_mean() -> Fold:
    def initial(packing: Packing) -> Any:
        return [list(EMPTY_SUM), 0]

    def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
        return state if value is None else [add_number(state[0], value, 1, packing), state[1] + 1]

    def retract(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
        return state if value is None else [add_number(state[0], value, -1, packing), state[1] - 1]

    def result(state: Any, packing: Packing) -> Any:
        return divide_sum(state[0], state[1], packing) if state[1] else None

    return Fold(initial, step, result, retract=retract)


def _make_extreme(
    last: bool,
    counts: Callable[[Any], bool],
    compared: Callable[[Any], Any] = lambda value: value,
    ordered: Callable[[Any], Any] = lambda value: value,
    chosen: Callable[[Any], Any] = lambda value: value,
) -> Fold:
    """Return the fold that keeps the edge of its values.

    The state is None, or the number of the set and the cell of its first or last value.

    Args:
        last: whether the highest value is kept.
        counts: whether an input counts.
        compared: returns what of an input is compared.
        ordered: returns what orders inputs, and is equal for equal ones.
        chosen: returns what of an input is the result.
    """
    better = compare_with_nan(gt if last else lt)

    def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
        if not counts(value):
            return state
        sets = _sets_of(packing)
        number, edge = (sets.create(packing.owner), None) if state is None else state
        cell = packing.pack(value)
        # Values that cannot be compared fail here.
        first = edge is None or better(compared(value), compared(packing.unpack(edge)))
        sets.add(packing.owner, number, order_bytes(ordered(value)), 1, cell)
        return [number, cell if first else edge]

    def retract(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
        if state is None or not counts(value):
            return state
        number, edge = state
        sets, data = _sets_of(packing), order_bytes(ordered(value))
        if sets.take(packing.owner, number, data) != 0 or data != order_bytes(ordered(packing.unpack(edge))):
            return state
        found = sets.edge(packing.owner, number, last=last)
        return [number, None if found is None else found[1]]

    def result(state: Any, packing: Packing) -> Any:
        return None if state is None or state[1] is None else chosen(packing.unpack(state[1]))

    return Fold(lambda packing: None, step, result, release=_release, retract=retract)


def collecting_fold_of(collector: Collector) -> tuple[Fold, Pick]:
    """Return the fold of a collector for values that may be taken back, and what it reads of values.

    All values of the group are read for each result. They are in their own order, because rows have none.
    """
    finish, pick = collector.result, pick_of(collector, boxed=True)

    def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
        sets = _sets_of(packing)
        number = sets.create(packing.owner) if state is None else state
        # In a list, because the cell of None would stand for no cell.
        sets.add(packing.owner, number, order_bytes(value), 1, packing.pack([value]))
        return number

    def retract(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
        if state is not None:
            _sets_of(packing).take(packing.owner, state, order_bytes(value))
        return state

    def result(state: Any, packing: Packing) -> Any:
        found = () if state is None else _sets_of(packing).items(packing.owner, state)
        return finish([packing.unpack(cell)[0] for _, count, cell in found for _ in range(count)])

    def release(state: Any, packing: Packing) -> None:
        if state is not None:
            _sets_of(packing).delete(packing.owner, state)

    fold = Fold(lambda packing: None, step, result, release=release, retract=retract)
    return (unbox(fold) if pick.boxed else fold), pick


def _make_distinct() -> Fold:
    def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
        if value is None:
            return state
        sets = _sets_of(packing)
        number, count = (sets.create(packing.owner), 0) if state is None else state
        return [number, count + (sets.add(packing.owner, number, order_bytes(value), 1) == 1)]

    def retract(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
        if value is None or state is None:
            return state
        left = _sets_of(packing).take(packing.owner, state[0], order_bytes(value))
        return [state[0], state[1] - (left == 0)]

    def result(state: Any, packing: Packing) -> Any:
        return 0 if state is None else state[1]

    return Fold(lambda packing: None, step, result, release=_release, retract=retract)


def _make_set() -> Fold:
    def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
        if value is None:
            return state
        sets = _sets_of(packing)
        state = [sets.create(packing.owner)] if state is None else state
        sets.add(packing.owner, state[0], order_bytes(value), 1, packing.pack(value))
        return state

    def retract(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
        if value is not None and state is not None:
            _sets_of(packing).take(packing.owner, state[0], order_bytes(value))
        return state

    def result(state: Any, packing: Packing) -> Any:
        found = () if state is None else _sets_of(packing).items(packing.owner, state[0])
        return [packing.unpack(cell) for _, _, cell in found]

    return Fold(lambda packing: None, step, result, release=_release, retract=retract)


def _release(state: Any, packing: Packing) -> None:
    if state is not None:
        _sets_of(packing).delete(packing.owner, state[0])


def _sets_of(packing: Packing) -> Any:
    if packing.counted is None:
        raise InvalidOperationError("this store has no counted values, which aggregates of tables need")
    return packing.counted


def _by(value: Any) -> Any:
    return value[1]


def _by_first(value: Any) -> Any:
    return [value[1], value[0]]


def _chosen(value: Any) -> Any:
    return value[0]


def _is_not_none(value: Any) -> bool:
    return value is not None


def _is_value(value: Any) -> bool:
    return value is not None and value == value


_FOLDS: Final[dict[type, Callable[[], Fold]]] = {
    Count: _make_count,
    Sum: _make_sum,
    Mean: _make_mean,
    Min: lambda: _make_extreme(False, _is_value),
    Max: lambda: _make_extreme(True, _is_value),
    AnyValue: lambda: _make_extreme(False, lambda value: value is not None, lambda value: 0),
    MinBy: lambda: _make_extreme(False, counts_by, _by, _by_first, _chosen),
    MaxBy: lambda: _make_extreme(True, counts_by, _by, _by_first, _chosen),
    CollectSet: _make_set,
    CountDistinct: _make_distinct,
    Total: _make_total,
}
_FOLDS_WITH_NAN: Final[dict[type, Callable[[], Fold]]] = {
    Min: lambda: _make_extreme(False, _is_not_none),
    Max: lambda: _make_extreme(True, _is_not_none),
    MinBy: lambda: _make_extreme(False, counts_by_any, _by, _by_first, _chosen),
    MaxBy: lambda: _make_extreme(True, counts_by_any, _by, _by_first, _chosen),
}
