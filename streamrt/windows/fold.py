"""Folds: how window operators aggregate values, record by record.

A `Fold` works on *states*: plain data that a head can hold, nested lists of cells, never changed in place. Results of
users' functions are packed, so that a change of an emitted value cannot change the stored one. A state in memory equals
one that was stored and read, so results do not depend on when commits happen.

A state may refer to counted values of its record key, which are not in the head: then `step` and `merge` change these, and
`release` deletes them. So each state goes on in one next state, or is released.

An *input* is the part of a record's value that an aggregation needs, extracted once.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from streamrt.state.transactions.counted_values import CountedValues

__all__ = [
    "Fold",
    "Input",
    "Packing",
    "make_cell",
    "return_state",
    "skipping_none",
    "start_at_zero",
    "start_empty",
    "unbox",
    "unpack_state",
]

Input = Any
"""The input of an aggregation: the value, or one column of it."""


class Packing(Protocol):
    """Converts users' values to cells and back, as `TimedTransaction` does."""

    @property
    def pack(self) -> Callable[[Any], Any]:
        """Converts a value to a cell."""

    @property
    def unpack(self) -> Callable[[Any], Any]:
        """Converts a cell to its value, a new object each time."""

    @property
    def arrival(self) -> Callable[[], int]:
        """Returns a number that increases with each call, for all keys of the store together."""

    @property
    def counted(self) -> CountedValues | None:
        """The counted values of the store; None if it has none."""

    @property
    def owner(self) -> bytes:
        """The prefix of the record key that states belong to."""


class Fold(NamedTuple):
    """An aggregation, ready to run.

    Attributes:
        initial: returns the state of a window without records.
        step: takes a state, an input, its event time in milliseconds and the packing; returns the next state.
        result: takes a state and the packing; returns the aggregate, a new object.
        merge: takes the states of an earlier and a later session and the packing; returns the merged state. None: not
            supported.
        whole: takes all inputs in the order of their arrival, and the packing; returns the same state as `step` for
            each of them. None: not supported.
        release: takes a state that is not used any more, and the packing; deletes what the state refers to. None: it
            refers to nothing.
        retract: takes a state, an input that `step` has added, a time in milliseconds and the packing; returns the state
            without that input. None: not supported.
    """

    initial: Callable[[Packing], Any]
    step: Callable[[Any, Input, int, Packing], Any]
    result: Callable[[Any, Packing], Any]
    merge: Callable[[Any, Any, Packing], Any] | None = None
    whole: Callable[[Sequence[Input], Packing], Any] | None = None
    release: Callable[[Any, Packing], None] | None = None
    retract: Callable[[Any, Input, int, Packing], Any] | None = None


def unbox(fold: Fold) -> Fold:
    """Return a fold of inputs that are None for records that do not count, and a list of one input for others.

    Its state is None as long as no record counted, because users' functions need not merge the state of no records.
    """
    inner_merge, inner_release, inner_retract = fold.merge, fold.release, fold.retract

    def initial(packing: Packing) -> Any:
        return None

    def step(state: Any, value: Input, timestamp: int, packing: Packing) -> Any:
        if value is None:
            return state
        return [fold.step(fold.initial(packing) if state is None else state[0], value[0], timestamp, packing)]

    def result(state: Any, packing: Packing) -> Any:
        return fold.result(fold.initial(packing) if state is None else state[0], packing)

    def merge(a: Any, b: Any, packing: Packing) -> Any:
        if a is None or b is None:
            return b if a is None else a
        return [inner_merge(a[0], b[0], packing)]  # type: ignore[misc]  # not used if it is None

    def release(state: Any, packing: Packing) -> None:
        if state is not None:
            inner_release(state[0], packing)  # type: ignore[misc]  # not used if it is None

    def retract(state: Any, value: Input, timestamp: int, packing: Packing) -> Any:
        if value is None or state is None:
            return state
        return [inner_retract(state[0], value[0], timestamp, packing)]  # type: ignore[misc]  # not used if it is None

    return Fold(
        initial,
        step,
        result,
        None if inner_merge is None else merge,
        release=None if inner_release is None else release,
        retract=None if inner_retract is None else retract,
    )


def start_at_zero(packing: Packing) -> int:
    """Return the state of no values, for sums."""
    return 0


def start_empty(packing: Packing) -> None:
    """Return the state of no values."""
    return


def return_state(state: Any, packing: Packing) -> Any:
    """Return a state that is its result."""
    return state


def unpack_state(state: Any, packing: Packing) -> Any:
    """Return the value of a state that is a cell."""
    return packing.unpack(state)


def make_cell(value: Any, packing: Packing) -> Any:
    """Return a value as a cell."""
    # Most values already are cells.
    return value if type(value) in (int, float) else packing.pack(value)


def skipping_none(whole: Callable[[Sequence[Any], Packing], Any]) -> Callable[[Sequence[Any], Packing], Any]:
    """Return a fold of many values at once that leaves out None."""

    def skip(values: Sequence[Any], packing: Packing) -> Any:
        try:
            return whole(values, packing)
        except TypeError:
            # Checked only after a failure: a search for None costs as much as the sum, and None is rare.
            if None not in values:
                raise
        return whole([value for value in values if value is not None], packing)

    return skip
