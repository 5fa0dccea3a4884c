"""Stores of an application under test: views of their values, and answers to state queries."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from streamrt.errors import ArgumentValueError
from streamrt.queries.routing import QueryTarget
from streamrt.queries.stored_state import StoredState
from streamrt.runtime.driver.starting.key_partitions import partition_of_key, partitioner_of, topic_of_keys
from streamrt.runtime.placement import placement_of
from streamrt.runtime.read_messages import TaskRead, TaskRows
from streamrt.state.reading import read_rows
from streamrt.state.spec import StoreSpec
from streamrt.testing.driver.record_processing import DriverExecution
from streamrt.testing.driver.views import StateView
from streamrt.topics import Topic
from streamrt.topology import Topology

__all__ = ["DriverStores"]


class DriverStores:
    """Reads stores, which hold all that is committed.

    Args:
        declared: the operators of the application.
        execution: runs it.
        topic: returns a topic of the application by its name.
    """

    def __init__(self, declared: Topology, execution: DriverExecution, topic: Callable[[str], Topic]) -> None:
        self._declared = declared
        self._topology = execution.topology
        self._execution = execution
        self._find_topic = topic

    @property
    def target(self) -> QueryTarget:
        """The object that answers state queries."""
        execution = self._execution
        stored = StoredState(
            self._topology,
            self._declared,
            execution.offsets.counts,
            execution.settings.options,
            execution.clients.now,
        )
        return QueryTarget(stored, self._topology.inputs, self._read, None)

    def view(self, topic: Topic | str, key: Any, store: str, partition: int | None) -> StateView:
        """See `TopologyTestDriver.state`."""
        scope, spec = self._find_store(topic if isinstance(topic, str) else topic.name, store)
        if partition is None:
            partition = self._partition_of(scope, key)
        return StateView(
            self._execution.stores.store(scope, spec), partition, key, spec.transaction, self._execution.clients.now
        )

    def _read(self, read: TaskRead) -> Future[TaskRows]:
        """Answer a read of a task's store."""
        store = self._topology.task_stores(read.task.stream)[read.store]
        with self._execution.stores.store(store.scope, store.spec).reading(read.task.partition) as opened:
            rows = read_rows(opened, read.read)
        inputs = placement_of(self._execution.settings, read.task, store).inputs
        answer: Future[TaskRows] = Future()
        answer.set_result(
            TaskRows(rows, {partition: self._execution.offsets.positions.get(partition, 0) for partition in inputs})
        )
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

    def _partition_of(self, topic: str, key: Any) -> int:
        """Return the partition of the records of a key."""
        name = topic_of_keys(self._topology, topic).name
        count = self._execution.offsets.counts[name]
        if key is None or count == 1:
            return 0
        return partition_of_key(self._find_topic(name), partitioner_of(self._topology, name), key, count)
