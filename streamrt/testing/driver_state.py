"""The state of an application under test: what `TopologyTestDriver` shows of it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from streamrt.app import Application
from streamrt.errors import ArgumentValueError
from streamrt.records import TopicPartition
from streamrt.runtime.driver.key_partitions import partition_of_key, partitioner_of
from streamrt.runtime.driver.state_queries import MOST_ENTRIES, StateQueries
from streamrt.runtime.driver.stored_state import StateAnswer, no_state_key
from streamrt.runtime.placement import StateSettings, placement_of
from streamrt.runtime.reads import TaskRead, TaskRows
from streamrt.state.reading import read_rows
from streamrt.state.spec import StoreSpec
from streamrt.state.store import DEFAULT_STORE
from streamrt.testing.memory import MemoryClients
from streamrt.testing.views import ReadableStores, StateView
from streamrt.topics import Topic
from streamrt.topology import Topology

__all__ = ["DriverState"]

_ALL = no_state_key()


class DriverState:
    """Shows state: `TopologyTestDriver` derives from it."""

    _app: Application
    _catalog: ReadableStores
    _clients: MemoryClients
    _declared: Topology
    _partitions: dict[str, int]
    _positions: dict[TopicPartition, int]
    _queries: StateQueries
    _state: StateSettings
    _topology: Topology

    def state(
        self, topic: Topic | str, key: Any, *, store: str = DEFAULT_STORE, partition: int | None = None
    ) -> StateView:
        """Return a view of a store's values for a key.

        Args:
            topic: the topic whose dataframe has the state. After a `group_by`, that is `sdf.topics[0]` of the grouped
                dataframe, whether or not its records pass through a repartition topic here. After a `concat` or a join,
                it is the `sdf.stream_id` of the new dataframe.
            key: the record's key, as operators see it.
            store: name of the store; names of groupings at its end may be left out.
            partition: the partition; by default 0, or the key's partition for a repartition topic.

        Raises:
            InvalidOperationError: if there is no such store, or more than one.

        Example:
            ```python
            by_customer = app.dataframe(orders).group_by("customer")
            by_customer.apply(add_up, stateful=True)
            driver = TopologyTestDriver(app)
            driver.pipe(orders, {"customer": "ann", "total": 10})
            assert driver.state(by_customer.topics[0], "ann").get("total") == 10
            ```
        """
        name = topic if isinstance(topic, str) else topic.name
        scope, spec = self._find_store(name, store)
        if partition is None:
            partition = self._partition(scope, key)
        return StateView(self._catalog.store(scope, spec), partition, key, spec.transaction, self._clients.now)

    def query_state(
        self,
        store: str,
        key: Any,
        state_key: Any = _ALL,
        *,
        topic: Topic | str | None = None,
        partition: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int = MOST_ENTRIES,
        cursor: str | None = None,
    ) -> StateAnswer:
        """Return the committed state of a message key, as `Application.query_state` does.

        Args:
            store: name of the store.
            key: the message key, as operators see it.
            state_key: one key of the state; by default all of the message key.
            topic: the topic of the store, if stores of several topics have this name.
            partition: the partition; by default that of the key.
            from_ms: for windows: only those that start at this time or later, in milliseconds.
            to_ms: for windows: only those that start before this time.
            limit: maximum number of entries.
            cursor: the `cursor` of a former answer, to go on there.

        Raises:
            ArgumentValueError: if there is no such store or partition.
            StateQueryError: if the store cannot be queried.

        Example:
            ```python
            driver.pipe(orders, {"total": 10}, key=b"ann")
            assert driver.query_state("default", "ann").get("total") == 10
            ```
        """
        return self._queries.query(
            store,
            key,
            state_key=state_key,
            topic=topic.name if isinstance(topic, Topic) else topic,
            partition=partition,
            from_ms=from_ms,
            to_ms=to_ms,
            limit=limit,
            cursor=cursor,
        )

    def scan_state(
        self,
        store: str,
        partition: int = 0,
        *,
        topic: Topic | str | None = None,
        prefix: str | bytes | None = None,
        start: str | bytes | None = None,
        end: str | bytes | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> StateAnswer:
        """Return the committed state of several message keys of one partition, as `Application.scan_state` does.

        Args:
            store: name of the store.
            partition: the partition.
            topic: the topic of the store, if stores of several topics have this name.
            prefix: only keys that begin so.
            start: only keys from this one on.
            end: only keys before this one.
            limit: maximum number of entries; for windows, of message keys.
            cursor: the `cursor` of a former answer, to go on there.

        Raises:
            ArgumentValueError: if there is no such store or partition.
            StateQueryError: if the store cannot be queried.
        """
        return self._queries.scan(
            store,
            partition,
            topic=topic.name if isinstance(topic, Topic) else topic,
            prefix=prefix,
            start=start,
            end=end,
            limit=limit,
            cursor=cursor,
        )

    def _read_state(self, read: TaskRead) -> Future[TaskRows]:
        """Read a store, which holds all that is committed."""
        store = self._topology.task_stores(read.task.stream)[read.store]
        with self._catalog.store(store.scope, store.spec).reading(read.task.partition) as opened:
            found = read_rows(opened, read.read)
        inputs = placement_of(self._state, read.task, store).inputs
        answer: Future[TaskRows] = Future()
        answer.set_result(TaskRows(found, {partition: self._positions.get(partition, 0) for partition in inputs}))
        return answer

    def _find_store(self, topic: str, store: str) -> tuple[str, StoreSpec]:
        """Return the source topics of a store, as one name, and the store."""
        if topic not in self._declared.scopes:
            raise ArgumentValueError(
                f"no dataframe reads topic {topic!r}; the application reads {', '.join(self._declared.scopes)}"
            )
        stores, scope = self._topology, topic
        if topic not in self._topology.scopes:
            # If all records are in one partition, the part after a group_by belongs to the input's task.
            stores, scope = self._declared, self._declared.resolved_scope(topic, self._topology)
        known = stores.stores(topic)
        found = [spec for spec in known if spec.name == store]
        found = found or [spec for spec in known if spec.name.partition(".")[0] == store]
        if len(found) != 1:
            trouble = "several stores" if found else "no store"
            names = ", ".join(repr(spec.name) for spec in known) or "none"
            raise ArgumentValueError(f"the dataframe of topic {topic!r} has {trouble} {store!r}; its stores: {names}")
        return scope, found[0]

    def _partition(self, topic: str, key: Any) -> int:
        """Return the partition of the records of a key."""
        exchanges = self._topology.exchanges.keys() - self._topology.broadcasts
        grouped = [name for name in self._topology.scopes[topic] if name in exchanges]
        if not grouped or key is None:
            return 0
        partitioner = partitioner_of(self._topology, grouped[0])
        return partition_of_key(self._topic(grouped[0]), partitioner, key, self._partitions[grouped[0]])

    def _topic(self, topic: Topic | str) -> Topic:
        if isinstance(topic, Topic):
            return topic
        known = self._app.topic_manager.all_topics.get(topic)
        if known is None:
            raise ArgumentValueError(f"the application has no topic {topic!r}")
        return known
