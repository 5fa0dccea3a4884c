"""Deliberate mistakes with broadcasts, for applications with broadcast state."""

from collections.abc import Callable, Iterator
from typing import Any

import streamrt.runtime.tasks.merge as merge_module
from streamrt.models import TopicPartition
from streamrt.operators.broadcast import Broadcast
from streamrt.runtime.tasks.commit import ExactlyOnceCommit
from streamrt.runtime.tasks.merge import ChunkSlice, Merge
from streamrt.runtime.tasks.task_registry import TaskRegistry
from streamrt.state.access.broadcast import BROADCAST_RANGE
from streamrt.state.base import Change
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.topology import Node, OperatorContext, RecordHandler, TaskId

BROADCAST = "broadcast"
"""In the names of mutants that are looked for in applications with broadcast state."""

_REAL_MERGE_ORDER = TaskRegistry.merge_order
_REAL_PREPARE = ProcessTransaction.prepare


def _send_to_the_first_partition(
    self: Broadcast, child: RecordHandler, node: Node, context: OperatorContext
) -> RecordHandler:
    return context.sender(self.topic, 1)


def _send_to_the_partition_of_the_key(
    self: Broadcast, child: RecordHandler, node: Node, context: OperatorContext
) -> RecordHandler:
    return context.sender(self.topic)


def _send_twice(self: Broadcast, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:
    send = context.sender(self.topic, self.partitions)

    def run(*record: Any) -> None:
        send(*record)
        send(*record)

    return run


def _take_inputs_one_after_the_other(self: Merge) -> Iterator[ChunkSlice]:
    for feed in self._feeds:
        while feed.ready():
            yield feed.next_slice(1 << 63)


def _put_broadcasts_last(self: TaskRegistry, task_id: TaskId) -> tuple[TopicPartition, ...]:
    return tuple(reversed(_REAL_MERGE_ORDER(self, task_id)))


def _read_what_is_delivered(self: Any, delivered: Any) -> Any:
    yield from delivered


def _keep_broadcast_state_on_disk_only(self: ProcessTransaction) -> list[Change]:
    return [change for change in _REAL_PREPARE(self) if not change[0].startswith(BROADCAST_RANGE)]


def _publish_one_input(self: ExactlyOnceCommit, stores: Any, end: Any, sent: Any) -> None:
    assert self._transaction is not None
    first = next(iter(end))
    self._transaction.commit({first: end[first]}, self._metadata.encode_all([first]))


Patch = tuple[Any, str, Callable[..., Any]]

_IN_ORDER = (
    ("inputs come one after the other", Merge, "runs", _take_inputs_one_after_the_other),
    ("broadcasts come after records of their time", TaskRegistry, "merge_order", _put_broadcasts_last),
    ("a merge does not read ahead", merge_module._Feed, "_read_chunks", _read_what_is_delivered),
    ("only one input's offset is committed", ExactlyOnceCommit, "publish", _publish_one_input),
    ("each partition gets each record twice", Broadcast, "build", _send_twice),
)
"""At least once, records may come twice, and what was read may be read again in another order."""

BROADCAST_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{prefix}{what}": ("", transactional, ((where, name, replacement),))
    for prefix, transactional in (
        (f"{BROADCAST}, ", True),
        (f"{BROADCAST}, at least once, ", False),
        (f"resident {BROADCAST}, ", True),
        (f"resident {BROADCAST}, at least once, ", False),
    )
    for what, where, name, replacement in (
        ("a record reaches one partition", Broadcast, "build", _send_to_the_first_partition),
        ("a record reaches the partition of its key", Broadcast, "build", _send_to_the_partition_of_the_key),
        ("state is not in the changelog", ProcessTransaction, "prepare", _keep_broadcast_state_on_disk_only),
        *(_IN_ORDER if transactional else ()),
    )
} | {
    f"{BROADCAST}, a transactional id fences nobody": ("fencing", True, ()),
}
