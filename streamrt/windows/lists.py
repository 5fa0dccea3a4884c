"""`CollectList`: all values of a window or a group, record by record, in their own order.

The values are counted values of the record key, as those of `CountDistinct`, so a record writes one entry. Where only a
head is kept, the state is a dict of the values with their counts and cells, and its size is limited.
"""

from typing import Any, Final

from streamrt.errors import StateError
from streamrt.state.ordered_bytes import order_bytes
from streamrt.windows.aggregator import BuiltIn
from streamrt.windows.fold import Fold, Packing

__all__ = ["CollectList"]

_MOST_IN_HEAD: Final = 10_000


class CollectList(BuiltIn):
    """The values that are not None, as a list in their own order: it does not depend on the order of arrival.

    SQL's `array_agg(x ORDER BY x)`, and Spark's `collect_list` with an order. `Collect` lists values in the order of time,
    and needs `final()`. Each result reads all values: with `current()`, and in tables, for windows and groups of some hundred
    values.

    Example:
        >>> pages = CollectList("page")
        >>> state = pages.initialize()
        >>> for page in ("home", "cart", "home", None):
        ...     state = pages.agg(state, {"page": page}, 0)
        >>> pages.result(state)
        ['cart', 'home', 'home']
    """

    def _make_fold(self) -> Fold:
        return Fold(_start_empty, _add_value, _list_values, _merge_lists, release=_release_list, retract=_take_back)


def _start_empty(packing: Packing) -> None:
    return None


def _add_value(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
    if value is None:
        return state
    sets = packing.counted
    if sets is None:
        return _count_in_head(state, value, 1, packing)
    number = sets.create(packing.owner) if state is None else state
    sets.add(packing.owner, number, order_bytes(value), 1, packing.pack(value))
    return number


def _take_back(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
    if value is None or state is None:
        return state
    if packing.counted is None:
        return _count_in_head(state, value, -1, packing)
    packing.counted.take(packing.owner, state, order_bytes(value))
    return state


def _count_in_head(state: Any, value: Any, by: int, packing: Packing) -> Any:
    known, name = ({} if state is None else dict(state)), order_bytes(value).decode("latin-1")
    count, cell = known.get(name) or (0, packing.pack(value))
    if sum(number for number, _ in known.values()) + by > _MOST_IN_HEAD:
        raise StateError(
            f"CollectList has {_MOST_IN_HEAD} values in one window, and here they must fit into its state: use a window "
            "without a trigger"
        )
    known[name] = [count + by, cell]
    if count + by <= 0:
        del known[name]
    return known


def _list_values(state: Any, packing: Packing) -> list[Any]:
    if state is None:
        return []
    if type(state) is dict:
        # One character of a name is one byte, so names are in the order of the values.
        counted = [state[name] for name in sorted(state)]
    else:
        sets: Any = packing.counted
        counted = [(count, cell) for _, count, cell in sets.items(packing.owner, state)]
    return [packing.unpack(cell) for count, cell in counted for _ in range(count)]


def _merge_lists(a: Any, b: Any, packing: Packing) -> Any:
    if a is None or b is None:
        return b if a is None else a
    sets = packing.counted
    if sets is None:
        for name, (count, cell) in b.items():
            known, _ = a.get(name) or (0, cell)
            a = {**a, name: [known + count, cell]}
        return a
    sets.merge(packing.owner, a, b)
    return a


def _release_list(state: Any, packing: Packing) -> None:
    if state is not None and packing.counted is not None:
        packing.counted.delete(packing.owner, state)
