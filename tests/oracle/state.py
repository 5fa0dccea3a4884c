"""Keyed state of PyFlink's operators, in dicts, behind the interface of PyFlink's state backend.

In a cluster, this state is in the JVM. What is here follows what PyFlink does with the answers of the JVM.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pyflink.fn_execution.internal_state import (
    InternalAggregatingState,
    InternalListState,
    InternalMapState,
    InternalReducingState,
    InternalValueState,
)

__all__ = ["Backend"]


class Backend:
    """A keyed state backend.

    Attributes:
        namespace_coder: of windows; set by PyFlink.
    """

    _namespace_coder_impl: Any = None

    def __init__(self) -> None:
        self.namespace_coder: Any = None
        self._key: tuple[Any, ...] = ()
        self._row: Any = None
        self._states: dict[str, Any] = {}

    def set_current_key(self, key: Any) -> None:
        self._row, self._key = key, tuple(key)

    def get_current_key(self) -> Any:
        return self._row

    @property
    def key(self) -> tuple[Any, ...]:
        return self._key

    def get_value_state(self, name: str, coder: Any, ttl: Any = None) -> Any:
        return self._states.setdefault(name, _Value(self))

    def get_list_state(self, name: str, coder: Any, ttl: Any = None) -> Any:
        return self._states.setdefault(name, _List(self))

    def get_map_state(self, name: str, key_coder: Any, value_coder: Any, ttl: Any = None) -> Any:
        return self._states.setdefault(name, _Map(self))

    def get_reducing_state(self, name: str, coder: Any, function: Any, ttl: Any = None) -> Any:
        return self._states.setdefault(name, _Reducing(self, function))

    def get_aggregating_state(self, name: str, coder: Any, function: Any, ttl: Any = None) -> Any:
        return self._states.setdefault(name, _Aggregating(self, function))

    def left(self) -> list[str]:
        """Return the names of the states that still have entries."""
        return sorted(name for name, state in self._states.items() if state.entries)


class _State:
    """One state: what it keeps, by key and namespace."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._namespace: Any = None
        self.entries: dict[tuple[Any, Any], Any] = {}

    def set_current_namespace(self, namespace: Any) -> None:
        self._namespace = namespace

    def clear(self) -> None:
        self.entries.pop(self._at, None)

    @property
    def _at(self) -> tuple[Any, Any]:
        return self._backend.key, self._namespace

    def _sources(self, sources: Collection[Any]) -> list[Any]:
        taken = (self.entries.pop((self._backend.key, source), None) for source in sources)
        return [entry for entry in taken if entry is not None]


class _Value(_State, InternalValueState):
    def value(self) -> Any:
        return self.entries.get(self._at)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self.entries[self._at] = value


class _List(_State, InternalListState):
    def add(self, value: Any) -> None:
        self.entries.setdefault(self._at, []).append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def get(self) -> Iterator[Any]:
        return iter(list(self.entries.get(self._at, ())))

    def __iter__(self) -> Iterator[Any]:
        return self.get()

    def update(self, values: Iterable[Any]) -> None:
        self.clear()
        self.add_all(values)

    def merge_namespaces(self, target: Any, sources: Collection[Any]) -> None:
        for entry in self._sources(sources):
            self.entries.setdefault((self._backend.key, target), []).extend(entry)


class _Map(_State, InternalMapState):
    def get(self, key: Any) -> Any:
        return self._entry().get(key)

    def put(self, key: Any, value: Any) -> None:
        self.entries.setdefault(self._at, {})[key] = value

    def put_all(self, values: dict[Any, Any]) -> None:
        for key, value in values.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        entry = self._entry()
        entry.pop(key, None)
        if not entry:
            self.clear()

    def contains(self, key: Any) -> bool:
        return key in self._entry()

    def items(self) -> Iterable[Any]:
        return list(self._entry().items())

    def keys(self) -> Iterable[Any]:
        return list(self._entry())

    def values(self) -> Iterable[Any]:
        return list(self._entry().values())

    def is_empty(self) -> bool:
        return not self._entry()

    def _entry(self) -> dict[Any, Any]:
        found: dict[Any, Any] = self.entries.get(self._at, {})
        return found


class _Reducing(_State, InternalReducingState):
    def __init__(self, backend: Backend, function: Any) -> None:
        super().__init__(backend)
        self._reduce = function.reduce

    def add(self, value: Any) -> None:
        old = self.entries.get(self._at)
        self.entries[self._at] = value if old is None else self._reduce(old, value)

    def get(self) -> Any:
        return self.entries.get(self._at)

    def merge_namespaces(self, target: Any, sources: Collection[Any]) -> None:
        for entry in self._sources(sources):
            at = self._backend.key, target
            old = self.entries.get(at)
            self.entries[at] = entry if old is None else self._reduce(old, entry)


class _Aggregating(_State, InternalAggregatingState):
    def __init__(self, backend: Backend, function: Any) -> None:
        super().__init__(backend)
        self._function = function

    def add(self, value: Any) -> None:
        old = self.entries.get(self._at)
        self.entries[self._at] = self._function.add(value, self._function.create_accumulator() if old is None else old)

    def get(self) -> Any:
        old = self.entries.get(self._at)
        return None if old is None else self._function.get_result(old)

    def merge_namespaces(self, target: Any, sources: Collection[Any]) -> None:
        for entry in self._sources(sources):
            at = self._backend.key, target
            old = self.entries.get(at)
            self.entries[at] = entry if old is None else self._function.merge(old, entry)
