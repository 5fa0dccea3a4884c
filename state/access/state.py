"""The state interface that is passed to the functions of stateful operators."""

import abc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from streamrt.state.access.handles import (
    AggregatingState,
    Aggregation,
    ListState,
    MapState,
    ReducingState,
    StateTtl,
    ValueState,
)

__all__ = ["State"]


class State(abc.ABC):
    """The state of the current record's key.

    A key is any object with a JSON form. Keys differ if their JSON differs: `5`, `"5"`, `True` and `1.0` are four keys.
    A value is any object with a JSON form. It is read back as JSON represents it, so a tuple becomes a list. Each `get`
    returns a new object; changing it has no effect without `set`.

    All operations see earlier writes, by this record or a previous one. If a commit fails, its writes are discarded.

    It is valid during the call of the function that got it, as its handles and their iterators are; later it raises
    `StateError`.
    """

    __slots__ = ()

    @abc.abstractmethod
    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key.

        Args:
            key: the key in the state.
            default: result for a missing or expired key. A stored None is not missing.

        Raises:
            SerializationError: if the key has no JSON form, or the stored bytes are not JSON.
        """

    @abc.abstractmethod
    def get_bytes(self, key: Any, default: bytes | None = None) -> bytes | None:
        """Return the stored bytes of a key: the argument of `set_bytes`, or the JSON of the value that `set` stored."""

    @abc.abstractmethod
    def set(self, key: Any, value: Any, ttl: timedelta | None = None) -> None:
        """Store a value.

        Args:
            key: the key in the state.
            value: the value; None is a value as well.
            ttl: time to live, in event time. The entry expires when stream time, the highest timestamp of any record
                that reached the store in this partition, has advanced by `ttl`. None: never.

        Raises:
            SerializationError: if key or value has no JSON form.
            StateError: if `ttl` is not positive.
        """

    @abc.abstractmethod
    def set_bytes(self, key: Any, value: bytes, ttl: timedelta | None = None) -> None:
        """Store bytes unchanged, without JSON; see `set`."""

    @abc.abstractmethod
    def delete(self, key: Any) -> None:
        """Delete a key. A missing key is not an error."""

    @abc.abstractmethod
    def exists(self, key: Any) -> bool:
        """Return whether a key has a value, which may be None."""

    # -- Handles: state with structure, by name ----------------------------------------------------------------------

    @abc.abstractmethod
    def value(self, name: str, *, default: Any = None, ttl: timedelta | StateTtl | None = None) -> ValueState:
        """Return the handle of one value; `get(name)` reads the same entry.

        Args:
            name: name of the state.
            default: what the handle returns while there is no value.
            ttl: time to live; see `StateTtl`. None: never expires.

        Raises:
            StateError: if `ttl` is not positive, or the name belongs to a state of another type.

        Example:
            ```python
            def number_of(order, state):
                count = state.value("count", default=0)
                count.update(count.value() + 1)
                return count.value()
            ```
        """

    @abc.abstractmethod
    def list(self, name: str, *, ttl: timedelta | StateTtl | None = None) -> ListState:
        """Return the handle of a list, whose elements expire one by one; see `value`.

        Example:
            ```python
            def gather(order, state):
                state.list("orders").add(order)
            ```
        """

    @abc.abstractmethod
    def map(self, name: str, *, ttl: timedelta | StateTtl | None = None) -> MapState:
        """Return the handle of a map, whose entries expire one by one; see `value`.

        Example:
            ```python
            def count_by_item(order, state):
                counts = state.map("counts")
                counts[order["item"]] = counts.get(order["item"], 0) + 1
                return dict(counts.items())
            ```
        """

    @abc.abstractmethod
    def reducing(
        self, name: str, reduce: Callable[[Any, Any], Any], *, ttl: timedelta | StateTtl | None = None
    ) -> ReducingState:
        """Return the handle of values that a function reduces to one; see `value`.

        Args:
            name: name of the state.
            reduce: function of the reduced value so far and the next value.
            ttl: time to live.

        Example:
            ```python
            def highest(order, state):
                prices = state.reducing("highest", max)
                prices.add(order["price"])
                return prices.get()
            ```
        """

    @abc.abstractmethod
    def aggregating(
        self, name: str, aggregator: Aggregation, *, ttl: timedelta | StateTtl | None = None
    ) -> AggregatingState:
        """Return the handle of values that are aggregated; see `value`.

        Args:
            name: name of the state.
            aggregator: an object with `initialize`, `agg` and `result`, such as an aggregator of `streamrt.windows`.
            ttl: time to live.

        Example:
            ```python
            def mean_price(order, state):
                prices = state.aggregating("prices", Mean("price"))
                prices.add(order)
                return prices.get()
            ```
        """

    @abc.abstractmethod
    def clear(self) -> None:
        """Delete all state of the record's key: values, lists and maps. Timers stay."""
