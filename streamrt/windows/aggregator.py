"""What aggregators and collectors are: functions of the values in a window."""

import abc
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, get_args

from streamrt.arguments import checked_choice
from streamrt.errors import ArgumentTypeError, InvalidOperationError
from streamrt.windows.fold import (
    Fold,
    Packing,
)
from streamrt.windows.inputs import Condition, Missing, Pick, Where, checked_where, extractor_of, name_condition

__all__ = ["PLAIN", "Aggregation", "Aggregator", "BuiltIn", "Collector", "pick_of"]


class Aggregation(abc.ABC):  # noqa: B024 - its two subclasses have abstract methods
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
            >>> from streamrt.windows import Count, Sum
            >>> Sum("price").state_suffix, Count(where=lambda row: row["price"] < 100).state_suffix
            ('Sum/price', 'Count where')
        """
        name = type(self).__name__
        return (name if self.column is None else f"{name}/{self.column}") + name_condition(self.where)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.column is None else repr(self.column)})"


class Aggregator(Aggregation):
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


class Collector(Aggregation):
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


class BuiltIn(Aggregator):
    """An aggregator that uses its column, skips None and can merge. Its methods are derived from its fold."""

    def initialize(self) -> Any:  # noqa: D102
        return self._make_fold().initial(PLAIN)

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:  # noqa: D102
        extract = extractor_of(pick_of(self))
        return self._make_fold().step(old, new if extract is None else extract(new), timestamp, PLAIN)

    def result(self, value: Any) -> Any:  # noqa: D102
        return self._make_fold().result(value, PLAIN)

    def merge(self, a: Any, b: Any) -> Any:  # noqa: D102
        merge = self._make_fold().merge
        return super().merge(a, b) if merge is None else merge(a, b, PLAIN)

    @abc.abstractmethod
    def _make_fold(self) -> Fold: ...


class _Plain(NamedTuple):
    """Packs nothing: for direct calls of an aggregator's methods."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    arrival: Callable[[], int]
    counted: None = None
    owner: bytes = b""


def _return_value(value: Any) -> Any:
    return value


PLAIN: Final = _Plain(_return_value, _return_value, int)


def pick_of(item: Aggregation, *, boxed: bool = False) -> Pick:
    """Return what an aggregation reads of a value.

    Args:
        item: the aggregation.
        boxed: whether it takes None as a value.
    """
    return Pick(item.column, item.missing, item.where, boxed and item.where is not None, getattr(item, "by", None))
