"""The part of a table that finds rows by their keys."""

import contextlib
import tempfile
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from streamrt.errors import ConfigurationError, InvalidOperationError, StreamRTError
from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.completion_token import Offsets
from streamrt.serializers.row_formats import KeyFormat
from streamrt.state import MemoryStore, RocksDBStore, Store
from streamrt.state.snapshots import StateSnapshots
from streamrt.tables.access.positions import TopicPositions
from streamrt.tables.descriptions.home import TableHome
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.replicas.follower import TableFollower
from streamrt.tables.replicas.lookups import RowLookups
from streamrt.tables.replicas.partition_rows import STORE_NAME
from streamrt.tables.replicas.replica import TableReplica
from streamrt.tables.replicas.replica_snapshots import ReplicaSnapshots
from streamrt.tables.rows.token_places import TokenPlaces

__all__ = ["TableLookups"]

_RETENTION = "delete.retention.ms"
_RETENTION_MS = 86_400_000
"""Kafka's default of it."""
T = TypeVar("T")


class TableLookups:
    """Finds rows by their keys; `Table` says what each method does.

    Without a replica of the caller's, one in memory is shared by all tables of the catalogue that have the topic. It follows
    the partitions in which keys were looked up, from the first lookup until the catalogue is closed.

    Args:
        info: the table, which has a primary key.
        home: its catalogue.
    """

    def __init__(self, info: TableInfo, home: TableHome) -> None:
        keys_as = home.key_format(info)
        if info.topic is None or keys_as is None:
            raise InvalidOperationError(f"table {info.name!r} has no topic with keys")
        self.info = info
        self._home = home
        self._topic = info.topic
        self._resource = ("replica", info.topic)
        self._keys_as: KeyFormat = keys_as

    def get_many(
        self, method: str, keys: Sequence[Any], after: Offsets | str | None, fresh: bool, timeout: float
    ) -> list[dict[str, Any] | None]:
        """Return the row of each key, or None."""
        return self._ask_shared(lambda: self._shared.get_many(method, keys, after, fresh, timeout))

    def prefix(
        self, key: Any, limit: int | None, after: Offsets | str | None, fresh: bool, timeout: float
    ) -> list[dict[str, Any]]:
        """Return the rows whose key begins with some values."""
        return self._ask_shared(lambda: self._shared.prefix(key, limit, after, fresh, timeout))

    def open_replica(
        self,
        store: type[Store],
        directory: str | Path | None,
        partitions: Collection[int] | None,
        snapshots: StateSnapshots | str | None,
    ) -> TableReplica:
        """Return a new local copy of the rows."""
        if not (isinstance(store, type) and issubclass(store, Store)):
            raise ConfigurationError(f"replica(store=...) must be a class such as RocksDBStore, got {store!r}")
        if store.persistent and directory is None:
            raise ConfigurationError(
                f"replica(store={store.__name__}) needs directory=, where its files are: the next replica there goes on "
                "with them"
            )
        if not store.persistent and directory is not None:
            raise ConfigurationError(
                f"replica(store={store.__name__}, directory=...): this store writes no files; leave directory= out, or "
                "choose store=RocksDBStore"
            )
        settings = StateSnapshots.parse(snapshots) if isinstance(snapshots, str) else snapshots
        if settings is not None:
            _check_snapshots(settings, store)
        follower = self._make_follower(store, directory, partitions, settings)
        return TableReplica(self.info.name, follower, self._make_lookups(lambda: follower))

    def _ask_shared(self, ask: Callable[[], T]) -> T:
        """Return what the shared replica answers; if it ends meanwhile, for example with its topic, what a new one does.

        Raises:
            StaleTokenError: if it has ended because the table has another topic now.
        """
        try:
            return ask()
        except StreamRTError:
            if not self._home.resources.is_replaceable(self._resource) or self._make_positions().has_moved():
                raise
        return ask()

    @cached_property
    def _shared(self) -> RowLookups:
        return self._make_lookups(self._shared_follower, is_lazy=True)

    def _shared_follower(self) -> TableFollower:
        return self._home.resources.get(
            self._resource, lambda: self._make_follower(MemoryStore, None, None, is_lazy=True)
        )

    def _make_lookups(self, follower: Callable[[], TableFollower], *, is_lazy: bool = False) -> RowLookups:
        positions = self._make_positions()
        return RowLookups(
            positions,
            TokenPlaces(self.info, self._home, positions),
            self._home.row_format(self.info),
            self._keys_as,
            self.info.num_partitions,
            follower,
            is_lazy=is_lazy,
        )

    def _make_follower(
        self,
        store: type[Store],
        directory: str | Path | None,
        partitions: Collection[int] | None,
        snapshots: StateSnapshots | None = None,
        *,
        is_lazy: bool = False,
    ) -> TableFollower:
        # Stores in memory write nothing there.
        base = Path(tempfile.gettempdir() if directory is None else directory)
        return TableFollower(
            self._home.links,
            self._make_positions(),
            store(STORE_NAME, self._topic, base),
            partitions,
            self._longest_absence_ms(),
            lazy=is_lazy,
            snapshots=None if snapshots is None else ReplicaSnapshots(snapshots, base),
        )

    def _make_positions(self) -> TopicPositions:
        admin, home, name = self._home.links.admin(), self._home, self.info.name
        return TopicPositions(admin, self._topic, name, home.timeout, lambda: home.load(name).topic)

    def _longest_absence_ms(self) -> int:
        """Return for how long deletes that were not seen are in the topic for sure; readers may not see its settings."""
        kept_ms = _RETENTION_MS
        with contextlib.suppress(KafkaRequestError, InvalidOperationError):
            found = self._home.links.admin().inspect_topics([self._topic], self._home.timeout)[self._topic]
            if found is not None:
                kept_ms = int(found.extra_config.get(_RETENTION, _RETENTION_MS))
        return kept_ms // 2


def _check_snapshots(snapshots: object, store: type[Store]) -> None:
    """Refuse settings of snapshots that a replica does not have."""
    if not isinstance(snapshots, StateSnapshots):
        raise ConfigurationError(
            "replica(snapshots=...) takes a StateSnapshots or a URL such as 's3://bucket/prefix', got "
            f"{type(snapshots).__name__}"
        )
    if not issubclass(store, RocksDBStore):
        raise ConfigurationError(
            f"replica(store={store.__name__}, snapshots=...): only stores on disk have snapshots: choose "
            "store=RocksDBStore with directory="
        )
    if snapshots.commits:
        raise ConfigurationError(
            "replica(snapshots=StateSnapshots(commits=...)): a replica has no commits; interval_s= says how often a "
            "snapshot is taken"
        )
