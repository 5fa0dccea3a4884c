"""Aggregators of distinct values.

Each has a set of counted values for each window, outside of its head, and in the head only `[number, count]` of this set. So
a record writes one entry at most, whatever the size of the window is. Where nothing but a head is kept, which is in windows
with triggers and in calls of their methods, the state is a dict of the values with their cells, and its size is limited.
"""

from typing import Any, Final

from streamrt.errors import StateError
from streamrt.state.ordered_bytes import order_bytes
from streamrt.windows.aggregator import BuiltIn
from streamrt.windows.fold import Fold, Packing

__all__ = ["CollectSet", "CountDistinct"]

_MOST_IN_HEAD: Final = 10_000


class CountDistinct(BuiltIn):
    """Counts the different values that are not None: exactly, in time and memory that depend on their number.

    Values are different if Python's `==` says so: 1, 1.0 and `Decimal("1")` are one value. All NaN are one value, and a value
    may be a list or a dict. In windows with triggers, a window may have 10,000 different values at most.

    Example:
        >>> users = CountDistinct("user")
        >>> state = users.initialize()
        >>> for value in ("ann", "bob", "ann", None):
        ...     state = users.agg(state, {"user": value}, 0)
        >>> users.result(state)
        2
    """

    def _make_fold(self) -> Fold:
        return Fold(_start_empty, _add_value, _count_values, _merge_sets, release=_release_set)


class CollectSet(BuiltIn):
    """The different values that are not None, as a list in their own order: it does not depend on the order of arrival.

    SQL's `array_agg(DISTINCT x ORDER BY x)`, and Spark's `collect_set` with an order. Values are different as for
    `CountDistinct`; of equal ones, such as 1 and 1.0, the first to arrive is in the list. Values of different types are
    in the order of their types. Each result reads all values: with `current()`, and in tables, for windows and groups of
    some hundred values.

    Example:
        >>> pages = CollectSet("page")
        >>> state = pages.initialize()
        >>> for page in ("home", "cart", "home", None):
        ...     state = pages.agg(state, {"page": page}, 0)
        >>> pages.result(state)
        ['cart', 'home']
    """

    def _make_fold(self) -> Fold:
        return Fold(_start_empty, _keep_value, _list_values, _merge_sets, release=_release_set)


def _start_empty(packing: Packing) -> None:
    return None


def _add_value(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
    if value is None:
        return state
    data, sets = order_bytes(value), packing.counted
    if sets is None:
        return _add_in_head("CountDistinct", state, data.decode("latin-1"), 1)
    number, count = (sets.create(packing.owner), 0) if state is None else state
    return [number, count + sets.insert(packing.owner, number, data)]


def _keep_value(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
    if value is None:
        return state
    data, sets = order_bytes(value), packing.counted
    if sets is None:
        return _add_in_head("CollectSet", state, data.decode("latin-1"), packing.pack(value))
    number, count = (sets.create(packing.owner), 0) if state is None else state
    return [number, count + sets.insert(packing.owner, number, data, packing.pack(value))]


def _list_values(state: Any, packing: Packing) -> list[Any]:
    if state is None:
        return []
    if type(state) is dict:
        # One character of a name is one byte, so names are in the order of the values.
        cells = [state[name] for name in sorted(state)]
    else:
        sets: Any = packing.counted
        cells = [cell for _, _, cell in sets.items(packing.owner, state[0])]
    return [packing.unpack(cell) for cell in cells]


def _add_in_head(kind: str, state: Any, name: str, cell: Any) -> Any:
    known = {} if state is None else state
    if name in known:
        return state
    if len(known) >= _MOST_IN_HEAD:
        raise StateError(
            f"{kind} has {_MOST_IN_HEAD} different values in one window, and here they must fit into its state: use "
            f"{'ApproxCountDistinct, or ' if kind == 'CountDistinct' else ''}a window without a trigger"
        )
    return {**known, name: cell}


def _count_values(state: Any, packing: Packing) -> int:
    if state is None:
        return 0
    count: int = state[1] if type(state) is list else len(state)
    return count


def _merge_sets(a: Any, b: Any, packing: Packing) -> Any:
    if a is None or b is None:
        return b if a is None else a
    sets = packing.counted
    if sets is None:
        for name, cell in b.items():
            a = _add_in_head("an aggregation of distinct values", a, name, cell)
        return a
    if a[1] < b[1]:
        a, b = b, a
    return [a[0], a[1] + sets.merge(packing.owner, a[0], b[0])]


def _release_set(state: Any, packing: Packing) -> None:
    if state is not None and packing.counted is not None:
        packing.counted.delete(packing.owner, state[0])
