"""Aggregators that keep the value of one record, by arrival or by event time."""

from operator import ge, gt, lt
from typing import Any

from streamrt.windows.aggregator import BuiltIn
from streamrt.windows.fold import Fold, Packing, start_empty, unpack_state

__all__ = ["Arrived", "Earliest", "First", "Last", "Latest"]


class Arrived(BuiltIn):
    """Keeps the value of one record. If windows merge, its state is the value and the arrival number of its record."""

    _better: Any
    _keeps: bool

    def _fold_by_arrival(self) -> Fold:
        better, keeps = self._better, self._keeps

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            if value is None or (keeps and state is not None):
                return state
            return [packing.pack(value), packing.arrival()]

        def result(state: Any, packing: Packing) -> Any:
            return packing.unpack(state[0] if type(state) is list else state)

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            if a is None or b is None:
                return b if a is None else a
            if type(a) is not list or type(b) is not list:
                # An earlier version has stored values without a number: the order of windows must do.
                return a if keeps else b
            return b if better(b[1], a[1]) else a

        return Fold(start_empty, step, result, merge)


class First(Arrived):
    """The value that arrived first and is not None."""

    _better = lt
    _keeps = True

    def _make_fold(self) -> Fold:
        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            return packing.pack(value) if state is None else state

        return Fold(start_empty, step, unpack_state, lambda a, b, packing: b if a is None else a)


class Last(Arrived):
    """The value that arrived last and is not None."""

    _better = gt
    _keeps = False

    def _make_fold(self) -> Fold:
        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            return state if value is None else packing.pack(value)

        return Fold(start_empty, step, unpack_state, lambda a, b, packing: a if b is None else b)


class _Timed(BuiltIn):
    """Keeps the value of one record and its event time."""

    _better: Any

    def _make_fold(self) -> Fold:
        better = self._better

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            if value is None or (state is not None and not better(timestamp, state[1])):
                return state
            return [packing.pack(value), timestamp]

        def result(state: Any, packing: Packing) -> Any:
            return None if state is None else packing.unpack(state[0])

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            return a if b is None or (a is not None and not better(b[1], a[1])) else b

        return Fold(start_empty, step, result, merge)


class Earliest(_Timed):
    """The value with the lowest event time that is not None; of several, the one that arrived first."""

    _better = lt


class Latest(_Timed):
    """The value with the highest event time that is not None; of several, the one that arrived last."""

    _better = ge
