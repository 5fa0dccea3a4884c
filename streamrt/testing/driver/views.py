"""Read access to the stores of a test driver, also while a task has them open."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from streamrt.errors import StateError
from streamrt.process import TimeDomain
from streamrt.runtime.placement import StateSettings
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.state import State, Store, StorePartition
from streamrt.state.access.handles import Aggregation
from streamrt.state.base import Transaction
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.state.transactions.process_functions import ProcessTransaction

__all__ = ["ReadableStore", "ReadableStores", "StateView"]


class ReadableStore(Store):
    """A store whose open partitions can also be read by others.

    Args:
        store: the store with the data.
    """

    persistent: ClassVar[bool] = False

    def __init__(self, store: Store) -> None:
        super().__init__(store.name, store.topic, store.base_dir, store.options)
        self._store = store
        self._opened: dict[int, StorePartition] = {}

    def open(self, partition: int) -> StorePartition:  # noqa: D102
        opened = self._opened[partition] = self._store.open(partition)
        return opened

    def destroy(self, partition: int) -> None:  # noqa: D102
        self._store.destroy(partition)

    @contextlib.contextmanager
    def reading(self, partition: int) -> Iterator[StorePartition]:
        """Yield a partition to read from: the one that a task has open, or else one that is opened for the purpose."""
        opened = self._opened.get(partition)
        if opened is not None and not _is_closed(opened):
            yield opened
            return
        with contextlib.closing(self._store.open(partition)) as opened:
            yield opened


class ReadableStores(StoreCatalog):
    """The stores of a test driver; views may read them at any time between two records."""

    def __init__(self, settings: StateSettings) -> None:
        super().__init__(settings)
        self._readable: dict[tuple[str, str], ReadableStore] = {}

    def store(self, topic: str, spec: StoreSpec) -> ReadableStore:
        """Return the store of a source topic, or of several merged topics."""
        store = self._readable.get((topic, spec.name))
        if store is None:
            store = self._readable[topic, spec.name] = ReadableStore(super().store(topic, spec))
        return store


class StateView:
    """View of a store's current values for one key.

    Args:
        store: the store.
        partition: its partition.
        key: the record's key.
        transaction: class of the store's transactions.
        now: returns the wall clock in milliseconds since the Unix epoch; by default that of the machine.
    """

    def __init__(
        self,
        store: ReadableStore,
        partition: int,
        key: Any,
        transaction: type[Transaction] = StoreTransaction,
        now: Callable[[], int] | None = None,
    ) -> None:
        self._now = now
        self._transaction = transaction if issubclass(transaction, StoreTransaction) else StoreTransaction
        self._store = store
        self._partition = partition
        self._key = key

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a state key, or `default`."""
        with self._open_state() as state:
            return state.get(key, default)

    def get_bytes(self, key: Any, default: bytes | None = None) -> bytes | None:
        """Return the bytes of a state key, or `default`."""
        with self._open_state() as state:
            return state.get_bytes(key, default)

    def exists(self, key: Any) -> bool:
        """Return whether a state key has a value."""
        with self._open_state() as state:
            return state.exists(key)

    def timers(self, domain: TimeDomain = TimeDomain.EVENT_TIME) -> list[int]:
        """Return the times of the key's timers, in order.

        Args:
            domain: whether the timers wait for event time or for processing time.

        Raises:
            StateError: if the store is not that of a process function.
        """
        if not issubclass(self._transaction, ProcessTransaction):
            raise StateError(
                f"store {self._store.name!r} has no timers: pass store='process_...', that of a process function"
            )
        with self._store.reading(self._partition) as opened:
            transaction = self._transaction(opened, self._store.options)
            event = domain is TimeDomain.EVENT_TIME
            timers = transaction.event_timers if event else transaction.processing_timers
            return timers.times(transaction.prefix_of(self._key))

    def value(self, name: str, default: Any = None) -> Any:
        """Return the value of `State.value(name)`, or `default`; also that of a reducing state."""
        return self.get(name, default)

    def list(self, name: str) -> list[Any]:
        """Return the elements of `State.list(name)`."""
        with self._open_state() as state:
            return [*state.list(name)]

    def map(self, name: str) -> dict[Any, Any]:
        """Return the entries of `State.map(name)`; keys that are lists become tuples."""
        with self._open_state() as state:
            return {_make_hashable(key): value for key, value in state.map(name).items()}

    def aggregating(self, name: str, aggregator: Aggregation) -> Any:
        """Return the result of `State.aggregating(name, aggregator)`, or None."""
        with self._open_state() as state:
            return state.aggregating(name, aggregator).get()

    @contextlib.contextmanager
    def _open_state(self) -> Iterator[State]:
        with self._store.reading(self._partition) as opened:
            transaction = self._transaction(opened, self._store.options)
            if self._now is not None:
                transaction.now = self._now
            # A time before all others does not move stream time.
            yield transaction.state(self._key, -1)


def _make_hashable(key: Any) -> Any:
    return tuple(map(_make_hashable, key)) if isinstance(key, list) else key


def _is_closed(partition: StorePartition) -> bool:
    """Return whether a partition is closed: every closed partition refuses to be read."""
    try:
        partition.get(b"\x00")
    except StateError:
        return True
    return False
