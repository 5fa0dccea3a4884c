"""Aggregators: functions of the values in a window."""

import abc
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import reduce
from operator import add, ge, gt, lt, ne
from typing import Any, Final, NamedTuple, get_args

from streamrt.arguments import checked_choice
from streamrt.errors import ArgumentTypeError, InvalidOperationError
from streamrt.operators.functions import require_callable
from streamrt.windows.decimals import EXACT, QUOTIENTS
from streamrt.windows.fold import Fold, Packing, unbox
from streamrt.windows.inputs import Condition, Missing, NaN, Pick, Where, checked_where, extractor_of, name_condition

__all__ = [
    "Aggregator",
    "Collect",
    "Collector",
    "Count",
    "Earliest",
    "First",
    "Last",
    "Latest",
    "Max",
    "Mean",
    "Min",
    "Reduce",
    "Sum",
]

_NUMBERS: Final = (int, float)
_METHODS: Final = ("initialize", "agg", "result", "merge")


class _Aggregation(abc.ABC):  # noqa: B024 - its two subclasses have abstract methods
    """Common base of aggregators and collectors: what they use of which values."""

    # Classes of users need not call the constructor.
    column: str | None = None
    missing: Missing = "raise"
    where: Condition | None = None

    def __init__(self, column: str | None = None, missing: Missing = "raise", *, where: Where | None = None) -> None:
        if column is not None and (not isinstance(column, str) or not column):
            raise ArgumentTypeError(
                f"{type(self).__name__}(column=...) is the name of a column, or None for the whole value; got {column!r}"
            )
        self.column = column
        self.missing = checked_choice(f"{type(self).__name__}(missing=...)", missing, get_args(Missing))
        self.where = checked_where(f"{type(self).__name__}(where=...)", where)

    @property
    def state_suffix(self) -> str:
        """The name of the state in the store: a new suffix starts with an empty state.

        A condition is part of it; its text only if it consists of columns and constants.

        Example:
            >>> Sum("price").state_suffix, Count(where=lambda row: row["price"] < 100).state_suffix
            ('Sum/price', 'Count where')
        """
        name = type(self).__name__
        return (name if self.column is None else f"{name}/{self.column}") + name_condition(self.where)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.column is None else repr(self.column)})"


class Aggregator(_Aggregation):
    """Aggregates the values in a window, record by record.

    Derive from it for custom aggregations. A state is lists and dicts with str keys, of numbers, Decimals, str, bytes,
    bool, dates, times and None; a tuple comes back as a list. Each window has a separate state. `agg` gets the whole
    value of a record, None included, and may use `column`.

    Args:
        column: name of the column to use; None for the whole value.
        missing: what built-in aggregators do with a value that lacks the column: "raise" `MissingColumnError`, or "ignore"
            it like None.
        where: condition of the values that count: a function of the value, or a series, such as `sdf["price"] < 100`. A
            value for which it is false does not count for this aggregation. A class with a constructor of its own passes it
            on.

    Example:
        >>> class Product(Aggregator):
        ...     def initialize(self):
        ...         return 1
        ...
        ...     def agg(self, old, new, timestamp):
        ...         return old * new
        ...
        ...     def result(self, value):
        ...         return value
        >>> product = Product()
        >>> product.result(product.agg(product.agg(product.initialize(), 3, 0), 4, 0))
        12
    """

    @property
    def mergeable(self) -> bool:
        """Whether two states can be merged, as sessions need: true for classes that define `merge`."""
        return type(self).merge is not Aggregator.merge

    @abc.abstractmethod
    def initialize(self) -> Any:
        """Return the state of a window without records."""

    @abc.abstractmethod
    def agg(self, old: Any, new: Any, timestamp: int) -> Any:
        """Return the state after one more record.

        Args:
            old: the state so far; it may be changed and returned.
            new: the record's value.
            timestamp: its event time in milliseconds.
        """

    @abc.abstractmethod
    def result(self, value: Any) -> Any:
        """Return the output for a state."""

    def merge(self, a: Any, b: Any) -> Any:
        """Return the state of two sessions that a record has joined.

        Args:
            a: the state of the earlier session.
            b: the state of the later one.

        Raises:
            InvalidOperationError: unless a subclass defines `merge`.
        """
        raise InvalidOperationError(f"{type(self).__name__} cannot merge two states: define merge(a, b) in the class")

    def retract(self, old: Any, value: Any) -> Any:
        """Return the state without a value that `agg` has added: what aggregates of tables need, whose rows change.

        Args:
            old: the state so far; it may be changed and returned.
            value: the value.

        Raises:
            InvalidOperationError: unless a subclass defines `retract`.
        """
        raise InvalidOperationError(
            f"{type(self).__name__} cannot take a value back: define retract(old, value) in the class"
        )

    def _make_fold(self) -> Fold:
        initialize, agg, result, merge, take_back = self.initialize, self.agg, self.result, self.merge, self.retract

        def initial(packing: Packing) -> Any:
            return packing.pack(initialize())

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            return packing.pack(agg(packing.unpack(state), value, timestamp))

        def finish(state: Any, packing: Packing) -> Any:
            return result(packing.unpack(state))

        def merged(a: Any, b: Any, packing: Packing) -> Any:
            return packing.pack(merge(packing.unpack(a), packing.unpack(b)))

        def retract(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            return packing.pack(take_back(packing.unpack(state), value))

        return Fold(
            initial,
            step,
            finish,
            merged if self.mergeable else None,
            retract=None if type(self).retract is Aggregator.retract else retract,
        )


class Collector(_Aggregation):
    """Aggregates all values in a window at once, when the window closes.

    Derive from it for aggregations that an `Aggregator` cannot compute record by record. Values are stored one by one,
    so the cost of a record does not grow with the window. Collectors work with `final()` only.

    Args:
        column: name of the column to collect. By default, whole values are collected.
        missing: "raise" `MissingColumnError` for a value without the column, or "ignore": the item is None.
        where: condition of the values that are collected, as for an `Aggregator`.

    Example:
        >>> class Median(Collector):
        ...     def result(self, items):
        ...         return sorted(items)[len(items) // 2]
        >>> Median("price").result([3, 9, 5])
        5
    """

    @abc.abstractmethod
    def result(self, items: Iterable[Any]) -> Any:
        """Return the output for a window.

        Args:
            items: list of the values, None included, in the order of event time and, for equal times, of arrival.
        """


class _BuiltIn(Aggregator):
    """An aggregator that uses its column, skips None and can merge. Its methods are derived from its fold."""

    def initialize(self) -> Any:
        return self._make_fold().initial(_PLAIN)

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:
        extract = extractor_of(pick_of(self))
        return self._make_fold().step(old, new if extract is None else extract(new), timestamp, _PLAIN)

    def result(self, value: Any) -> Any:
        return self._make_fold().result(value, _PLAIN)

    def merge(self, a: Any, b: Any) -> Any:
        merge = self._make_fold().merge
        return super().merge(a, b) if merge is None else merge(a, b, _PLAIN)

    @abc.abstractmethod
    def _make_fold(self) -> Fold: ...


class Count(_BuiltIn):
    """Counts the values that are not None.

    Example:
        >>> from streamrt.windows import Count
        >>> Count("price")
        Count('price')
        >>> cheap = Count(where=lambda row: row["price"] < 100)
        >>> cheap.agg(cheap.agg(cheap.initialize(), {"price": 5}, 0), {"price": 500}, 1)
        1
    """

    def _make_fold(self) -> Fold:
        def step(state: int, value: Any, timestamp: int, packing: Packing) -> int:
            return state if value is None else state + 1

        def whole(values: Sequence[Any], packing: Packing) -> int:
            return len(values) - values.count(None) if None in values else len(values)

        return Fold(_start_at_zero, step, _return_state, _add_value, whole)


class Sum(_BuiltIn):
    """Adds up the values that are not None, starting with the int 0: ints and Decimals stay exact.

    Example:
        >>> total = Sum()
        >>> total.agg(total.agg(total.initialize(), 2**60, 0), 1, 0) - 2**60
        1
    """

    def _make_fold(self) -> Fold:
        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            return state if value is None else _add_value(state, value, packing)

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            return _add_value(a, packing.unpack(b), packing)

        return Fold(_start_at_zero, step, _unpack_state, merge, _skipping_none(_sum_values))


class Mean(_BuiltIn):
    """The sum of the values that are not None, divided by their number: a float, or None without values.

    That of Decimals is a Decimal: the exact sum, and a quotient of at most 38 digits.

    Example:
        >>> from decimal import Decimal
        >>> mean = Mean()
        >>> mean.result(mean.agg(mean.agg(mean.initialize(), Decimal("0.1"), 0), Decimal("0.2"), 0))
        Decimal('0.15')
    """

    def _make_fold(self) -> Fold:
        def initial(packing: Packing) -> Any:
            return [0.0, 0]

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            if value is None:
                return state
            total, count = state
            if not count and type(value) is Decimal:
                total = 0
            return [_add_value(total, value, packing), count + 1]

        def result(state: Any, packing: Packing) -> Any:
            total, count = state
            if not count:
                return None
            total = packing.unpack(total)
            return QUOTIENTS.divide(total, count) if type(total) is Decimal else total / count

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            if not (a[1] and b[1]):
                return a if a[1] else b
            return [_add_value(a[0], packing.unpack(b[0]), packing), a[1] + b[1]]

        def whole(values: Sequence[Any], packing: Packing) -> Any:
            start: Any = 0 if values and type(values[0]) is Decimal else 0.0
            return [_add_values(values, start, packing), len(values)]

        return Fold(initial, step, result, merge, _skipping_none(whole))


class _Extreme(_BuiltIn):
    """Keeps one of two values; at ties, the earlier one."""

    # The comparisons of `operator` are C functions, so a class attribute does not become a method.
    _better: Any
    _best: Any

    def __init__(
        self,
        column: str | None = None,
        missing: Missing = "raise",
        *,
        nan: NaN = "ignore",
        where: Where | None = None,
    ) -> None:
        super().__init__(column, missing, where=where)
        self.nan = checked_choice(f"{type(self).__name__}(nan=...)", nan, get_args(NaN))

    def _make_fold(self) -> Fold:
        return self._fold_with_nan() if self.nan == "highest" else self._fold_without_nan()

    def _fold_with_nan(self) -> Fold:
        better = compare_with_nan(self._better)

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            if value is None:
                return state
            if state is None or better(value, packing.unpack(state)):
                return _make_cell(value, packing)
            return state

        return Fold(_start_empty, step, _unpack_state, lambda a, b, packing: step(a, packing.unpack(b), 0, packing))

    def _fold_without_nan(self) -> Fold:
        better, best = self._better, self._best

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            # NaN is not a value: no number is below or above it.
            if value is None or value != value:
                return state
            if state is None or better(value, packing.unpack(state) if type(state) is str else state):
                return _make_cell(value, packing)
            return state

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            return step(a, packing.unpack(b), 0, packing)

        def whole(values: Sequence[Any], packing: Packing) -> Any:
            if any(map(ne, values, values)):
                values = [value for value in values if value == value]
            return _make_cell(best(values, default=None), packing)

        return Fold(_start_empty, step, _unpack_state, merge, _skipping_none(whole))


class Min(_Extreme):
    """The lowest of the values that are neither None nor NaN, unchanged; the earlier one at ties, None without values.

    With `nan="highest"`, NaN is a value above all other numbers, as in Spark and PostgreSQL.
    """

    _better = lt
    _best = min


class Max(_Extreme):
    """The highest of the values that are neither None nor NaN, unchanged; the earlier one at ties, None without values.

    With `nan="highest"`, NaN is a value above all other numbers, as in Spark and PostgreSQL.
    """

    _better = gt
    _best = max


class _Arrived(_BuiltIn):
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

        return Fold(_start_empty, step, result, merge)


class First(_Arrived):
    """The value that arrived first and is not None."""

    _better = lt
    _keeps = True

    def _make_fold(self) -> Fold:
        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            return packing.pack(value) if state is None else state

        return Fold(_start_empty, step, _unpack_state, lambda a, b, packing: b if a is None else a)


class Last(_Arrived):
    """The value that arrived last and is not None."""

    _better = gt
    _keeps = False

    def _make_fold(self) -> Fold:
        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            return state if value is None else packing.pack(value)

        return Fold(_start_empty, step, _unpack_state, lambda a, b, packing: a if b is None else b)


class _Timed(_BuiltIn):
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

        return Fold(_start_empty, step, result, merge)


class Earliest(_Timed):
    """The value with the lowest event time that is not None; of several, the one that arrived first."""

    _better = lt


class Latest(_Timed):
    """The value with the highest event time that is not None; of several, the one that arrived last."""

    _better = ge


class Reduce(Aggregator):
    """Aggregates with functions. Unlike other aggregators, they also receive None.

    Their results are stored, as states of an `Aggregator`; a tuple comes back as a list.

    Args:
        reducer: function from the aggregate so far and a value to the new aggregate.
        initializer: function from the first value of a window to the aggregate.
        merger: function from the aggregates of an earlier and a later session that a record has joined to the merged
            aggregate. Session windows need it.
        where: condition of the values that count, as for an `Aggregator`.

    Raises:
        InvalidOperationError: if one of them is not callable.

    Example:
        >>> longest = Reduce(lambda old, new: max(old, len(new)), len)
        >>> longest.agg(longest.agg(longest.initialize(), "four", 0), "two", 0)
        4
    """

    def __init__(
        self,
        reducer: Callable[[Any, Any], Any],
        initializer: Callable[[Any], Any],
        merger: Callable[[Any, Any], Any] | None = None,
        *,
        where: Where | None = None,
    ) -> None:
        super().__init__(where=where)
        require_callable("Reduce(reducer=...)", reducer)
        require_callable("Reduce(initializer=...)", initializer)
        if merger is not None:
            require_callable("Reduce(merger=...)", merger)
        self.reducer = reducer
        self.initializer = initializer
        self.merger = merger

    @property
    def mergeable(self) -> bool:  # noqa: D102
        return self.merger is not None

    def initialize(self) -> Any:  # noqa: D102
        return None

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:  # noqa: D102
        return self.initializer(new) if old is None else self.reducer(old, new)

    def result(self, value: Any) -> Any:  # noqa: D102
        return value

    def merge(self, a: Any, b: Any) -> Any:  # noqa: D102
        return super().merge(a, b) if self.merger is None else self.merger(a, b)

    def _make_fold(self) -> Fold:
        reducer, initializer = self.reducer, self.initializer

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            # A list marks a window with records, so that an aggregate of None does not start the window again.
            if state is None:
                return [packing.pack(initializer(value))]
            return [packing.pack(reducer(packing.unpack(state[0]), value))]

        def result(state: Any, packing: Packing) -> Any:
            return None if state is None else packing.unpack(state[0])

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            return [packing.pack(self.merge(packing.unpack(a[0]), packing.unpack(b[0])))]

        return Fold(_start_empty, step, result, merge if self.mergeable else None)


class Collect(Collector):
    """All values as a list, None included, in the order of event time and, for equal times, of arrival.

    Example:
        >>> Collect().result(["a", "b"])
        ['a', 'b']
    """

    def result(self, items: Iterable[Any]) -> list[Any]:  # noqa: D102
        return list(items)


class _Plain(NamedTuple):
    """Packs nothing: for direct calls of an aggregator's methods."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    arrival: Callable[[], int]
    counted: None = None
    owner: bytes = b""


def _return_value(value: Any) -> Any:
    return value


_PLAIN: Final = _Plain(_return_value, _return_value, int)


def compare_with_nan(better: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return a comparison, `lt` or `gt`, for which NaN is above all other numbers."""
    above = better is gt

    def compare(a: Any, b: Any) -> bool:
        if a != a or b != b:
            return bool((a != a and b == b) if above else (b != b and a == a))
        return better(a, b)

    return compare


def pick_of(item: _Aggregation, *, boxed: bool = False) -> Pick:
    """Return what an aggregation reads of a value.

    Args:
        item: the aggregation.
        boxed: whether it takes None as a value.
    """
    return Pick(item.column, item.missing, item.where, boxed and item.where is not None, getattr(item, "by", None))


def _start_at_zero(packing: Packing) -> int:
    return 0


def _start_empty(packing: Packing) -> None:
    return None


def _return_state(state: Any, packing: Packing) -> Any:
    return state


def _unpack_state(state: Any, packing: Packing) -> Any:
    return packing.unpack(state)


def _add_value(state: Any, value: Any, packing: Packing) -> Any:
    if type(state) is str:
        state = packing.unpack(state)
    total = state + value
    if type(total) in _NUMBERS:
        return total
    return packing.pack(EXACT.add(state, value) if type(total) is Decimal else total)


def _make_cell(value: Any, packing: Packing) -> Any:
    # Most values already are cells.
    return value if type(value) in _NUMBERS else packing.pack(value)


def _sum_values(values: Sequence[Any], packing: Packing) -> Any:
    return _add_values(values, 0, packing)


def _add_values(values: Sequence[Any], start: Any, packing: Packing) -> Any:
    # Not sum(): since Python 3.12, it rounds floats differently from single additions.
    total = reduce(add, values, start)
    return _make_cell(reduce(EXACT.add, values, start) if type(total) is Decimal else total, packing)


def _skipping_none(whole: Callable[[Sequence[Any], Packing], Any]) -> Callable[[Sequence[Any], Packing], Any]:
    def skipping_none(values: Sequence[Any], packing: Packing) -> Any:
        try:
            return whole(values, packing)
        except TypeError:
            # Checked only after a failure: a search for None costs as much as the sum, and None is rare.
            if None not in values:
                raise
        return whole([value for value in values if value is not None], packing)

    return skipping_none


def is_built_in(aggregator: Aggregator) -> bool:
    """Return whether an aggregator's methods are those of a built-in class, so that its fold may be used."""
    kind = type(aggregator)
    return issubclass(kind, _BuiltIn) and _has_methods_of(kind, _BuiltIn)


def fold_of(aggregator: Aggregator, *, by_arrival: bool = False) -> tuple[Fold, Pick]:
    """Return the fold of an aggregator, and what it reads of values.

    Args:
        aggregator: the aggregator.
        by_arrival: whether states of different windows merge, so that the order of arrival must be in them.
    """
    if is_built_in(aggregator):
        if by_arrival and isinstance(aggregator, _Arrived):
            return aggregator._fold_by_arrival(), pick_of(aggregator)
        return aggregator._make_fold(), pick_of(aggregator)
    if isinstance(aggregator, Reduce) and _has_methods_of(type(aggregator), Reduce):
        fold, pick = aggregator._make_fold(), pick_of(aggregator, boxed=True)
    else:
        # A user's class, possibly derived from a built-in one: use the methods that it defines, which take whole values.
        fold = Aggregator._make_fold(aggregator)
        pick = Pick(where=aggregator.where, boxed=aggregator.where is not None)
    return (unbox(fold) if pick.boxed else fold), pick


def _has_methods_of(kind: type, known: type) -> bool:
    return all(getattr(kind, name) is getattr(known, name) for name in _METHODS)
