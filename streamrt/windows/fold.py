"""How values become aggregates: what operators of windows run for each record.

A `Fold` works on *states*: plain data that may stand in a head, nested lists of cells, never changed in place. What users'
functions return is packed, so that nobody can change what is stored by changing what was emitted. A state in memory is
the same as one that went through the store, so results do not depend on where commits fall.

Values come as *inputs*: what an aggregation looks at, extracted from the record's value once.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

__all__ = ["Fold", "Input", "Packing"]

Input = Any
"""What an aggregation looks at: the value, or one column of it."""


class Packing(Protocol):
    """Makes cells of users' values and back; a `TimedTransaction` does."""

    @property
    def pack(self) -> Callable[[Any], Any]:
        """Makes a cell of a value."""

    @property
    def unpack(self) -> Callable[[Any], Any]:
        """Makes the value of a cell, an object of its own each time."""


class Fold(NamedTuple):
    """An aggregation, ready to run.

    Attributes:
        initial: returns the state of a window without records.
        step: takes a state, an input, its event time in milliseconds and the packing; returns the next state.
        result: takes a state and the packing; returns the aggregate, an object of its own.
        merge: takes the states of an earlier and of a later session and the packing; returns that of both. None: it cannot.
        whole: takes inputs in the order of their arrival, and the packing; returns the state of all of them at once, the same
            as step after step. None: step after step is the only way.
    """

    initial: Callable[[Packing], Any]
    step: Callable[[Any, Input, int, Packing], Any]
    result: Callable[[Any, Packing], Any]
    merge: Callable[[Any, Any, Packing], Any] | None = None
    whole: Callable[[Sequence[Input], Packing], Any] | None = None
