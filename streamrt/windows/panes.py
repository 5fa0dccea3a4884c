"""The content of panes: the state of the aggregation, and the elements.

The stored content of a pane is `[state, count, lowest time, highest time, lists, used]`: the state of the fold, the number
of records and the bounds of their event times, the numbers of the lists with the elements, and which states also exist
(1: that of the trigger, 2: that of the window function).
"""

from collections.abc import Sequence
from typing import Any, Final

from streamrt.state.transactions.panes import PaneTransaction
from streamrt.windows.aggregation import Plan
from streamrt.windows.evictors import Evictor
from streamrt.windows.fold import Input
from streamrt.windows.pane_contexts import EvictorContext
from streamrt.windows.window import Window

__all__ = ["TRIGGER_STATE", "WINDOW_STATE", "Contents", "Pane"]

TRIGGER_STATE: Final = 1
WINDOW_STATE: Final = 2


class Pane:
    """The content of a pane, in memory.

    Attributes:
        state: state of the aggregation; None without records.
        count: number of records.
        low: lowest event time of its records.
        high: the highest one.
        lists: numbers of the lists with its elements.
        used: which states also exist.
    """

    __slots__ = ("count", "high", "lists", "low", "state", "used")

    def __init__(
        self,
        state: Any = None,
        count: int = 0,
        low: int | None = None,
        high: int | None = None,
        lists: Sequence[int] = (),
        used: int = 0,
    ) -> None:
        self.state = state
        self.count = count
        self.low = low
        self.high = high
        self.lists = lists
        self.used = used

    def include(self, timestamp: int) -> None:
        """Count a record."""
        self.count += 1
        self.low = timestamp if self.low is None else min(self.low, timestamp)
        self.high = timestamp if self.high is None else max(self.high, timestamp)


class Contents:
    """Reads and writes panes.

    Args:
        plan: the aggregation; None for a window function of elements.
        keeps: whether elements are kept.
        stays: whether empty panes stay: those that may merge.
    """

    def __init__(self, plan: Plan | None, *, keeps: bool, stays: bool) -> None:
        self._plan = plan
        self._keeps = keeps
        self._stays = stays

    def read(self, transaction: PaneTransaction, prefix: bytes, window: Window) -> Pane | None:
        """Return a pane; None if nothing is stored."""
        content = transaction.content(prefix, window.start, window.end)
        return None if content is None else Pane(*content)

    def write(self, transaction: PaneTransaction, prefix: bytes, window: Window, pane: Pane) -> None:
        """Store a pane."""
        content = None
        if pane.count or pane.used or self._stays:
            content = [pane.state, pane.count, pane.low, pane.high, pane.lists, pane.used]
        transaction.set_content(prefix, window.start, window.end, content)

    def delete(self, transaction: PaneTransaction, prefix: bytes, window: Window, pane: Pane | None) -> None:
        """Delete a pane with its elements."""
        if pane is not None:
            for number in pane.lists:
                transaction.drop(prefix, number)
            transaction.set_content(prefix, window.start, window.end, None)

    def input_of(self, value: Any) -> Input:
        """Return the input of the aggregation from a record's value."""
        return None if self._plan is None else self._plan.input_of(value)

    def element_of(self, transaction: PaneTransaction, timestamp: int, value: Any) -> bytes | None:
        """Return the stored form of a record; None if elements are not kept."""
        if not self._keeps:
            return None
        item = value if self._plan is None else self._plan.item_of(value)
        return transaction.encode_element(timestamp, item)

    def next_state(self, transaction: PaneTransaction, pane: Pane | None, value: Input, timestamp: int) -> Any:
        """Return the state of the aggregation with one more record; the pane stays as it is."""
        if self._plan is None:
            return None
        fold, packing = self._plan.fold, transaction.packing
        state = fold.initial(packing) if pane is None or not pane.count else pane.state
        return fold.step(state, value, timestamp, packing)

    def add(
        self, transaction: PaneTransaction, prefix: bytes, pane: Pane, state: Any, timestamp: int, element: bytes | None
    ) -> None:
        """Add a record to a pane."""
        pane.state = state
        pane.include(timestamp)
        if element is not None:
            number = transaction.append(prefix, pane.lists[-1] if pane.lists else None, element)
            if not pane.lists:
                pane.lists = [number]

    def purge(self, transaction: PaneTransaction, prefix: bytes, pane: Pane) -> None:
        """Delete all records of a pane."""
        for number in pane.lists:
            transaction.drop(prefix, number)
        pane.state, pane.count, pane.low, pane.high, pane.lists = None, 0, None, None, []

    def merged(self, transaction: PaneTransaction, panes: Sequence[Pane | None]) -> Pane:
        """Return the pane of several windows, given in the order of their starts."""
        result = Pane(lists=[])
        for pane in panes:
            if pane is None or not pane.count:
                continue
            if self._plan is not None:
                # The definition of the window has checked that `merge` is not None.
                merge: Any = self._plan.fold.merge
                result.state = merge(result.state, pane.state, transaction.packing) if result.count else pane.state
            result.include(pane.low or 0)
            result.include(pane.high or 0)
            result.count += pane.count - 2
            result.lists = [*result.lists, *pane.lists]
        return result

    def elements(self, transaction: PaneTransaction, prefix: bytes, pane: Pane) -> list[tuple[int, Any]]:
        """Return event time and value of all elements of a pane, in the order of their arrival."""
        return [(time, value) for _, _, time, value in self._stored_elements(transaction, prefix, pane)]

    def evicted(
        self,
        evictor: Evictor,
        context: EvictorContext,
        transaction: PaneTransaction,
        prefix: bytes,
        window: Window,
        pane: Pane,
    ) -> "Eviction":
        """Return the elements that an evictor leaves for the window function."""
        return Eviction(evictor, context, self._stored_elements(transaction, prefix, pane), window)

    def keep(self, transaction: PaneTransaction, prefix: bytes, pane: Pane, eviction: "Eviction") -> bool:
        """Delete the elements that were evicted; return whether there were any."""
        kept = eviction.after()
        own = {id(element) for element in kept}
        known = {id(element) for element in eviction.all}
        if own <= known:
            gone: dict[int, list[bytes]] = {}
            for (number, key, _, _), element in zip(eviction.stored, eviction.all, strict=True):
                if id(element) not in own:
                    gone.setdefault(number, []).append(key)
            for number, keys in gone.items():
                transaction.drop_elements(prefix, number, keys)
            if not gone:
                return False
        else:
            # Other objects: the evictor has made the list again.
            encoded = [transaction.encode_element(time, value) for time, value in kept]
            self.purge(transaction, prefix, pane)
            for data in encoded:
                pane.lists = [transaction.append(prefix, pane.lists[-1] if pane.lists else None, data)]
        times = [time for time, _ in kept]
        pane.count, pane.low, pane.high = len(times), min(times, default=None), max(times, default=None)
        if not times:
            self.purge(transaction, prefix, pane)
        return True

    def _stored_elements(
        self, transaction: PaneTransaction, prefix: bytes, pane: Pane
    ) -> list[tuple[int, bytes, int, Any]]:
        """Return list, key, event time and value of the elements of a pane, in the order of their arrival."""
        found = [
            (number, key, time, value)
            for number in pane.lists
            for key, time, value in transaction.elements(prefix, number)
        ]
        if len(pane.lists) > 1:
            # Keys end with the number of the arrival.
            found.sort(key=lambda element: element[1][-8:])
        return found


class Eviction:
    """The elements of a window that is emitted with an evictor.

    Attributes:
        stored: list, key, event time and value of all elements.
        all: event time and value of all elements.
        elements: those for the window function.
    """

    def __init__(
        self,
        evictor: Evictor,
        context: EvictorContext,
        stored: list[tuple[int, bytes, int, Any]],
        window: Window,
    ) -> None:
        self._evictor = evictor
        self._context = context
        self._window = window
        self.stored = stored
        self.all = [(time, value) for _, _, time, value in stored]
        self.elements = _check_elements(evictor, "evict_before", evictor.evict_before([*self.all], window, context))

    def after(self) -> list[tuple[int, Any]]:
        """Return the elements that stay."""
        kept = self._evictor.evict_after([*self.elements], self._window, self._context)
        return _check_elements(self._evictor, "evict_after", kept)


def _check_elements(evictor: Evictor, method: str, elements: Any) -> list[tuple[int, Any]]:
    if not isinstance(elements, list) or not all(isinstance(item, tuple) and len(item) == 2 for item in elements):
        raise TypeError(
            f"{type(evictor).__name__}.{method} must return a list of elements (time, value), got {type(elements).__name__}: "
            "return those of its argument that are kept"
        )
    return elements
