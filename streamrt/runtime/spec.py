"""The specification that the driver sends to the processes that run tasks."""

import logging
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamrt.common.pickles import dump_functions
from streamrt.errors import UnpicklableOperatorError
from streamrt.kafka.wire import CLIENT_MAX_BYTES
from streamrt.records import RawRecord, Record
from streamrt.runtime.captured import captured, picklable
from streamrt.runtime.layout_record import GroupLayout, InputPositions
from streamrt.runtime.metadata import CommitMetadata
from streamrt.runtime.placement import StateSettings
from streamrt.state.snapshots import StateSnapshots
from streamrt.topics import ErrorPolicies
from streamrt.topology import Topology
from streamrt.tracing import Tracing

ConsumerErrorCallback = Callable[[Exception, "RawRecord | None", logging.Logger], bool]
ProcessingErrorCallback = Callable[[Exception, "Record | None", logging.Logger], bool]
ProducerErrorCallback = Callable[[Exception, "Record | None", logging.Logger], bool]


@dataclass(frozen=True)
class ErrorCallbacks:
    """The user's error callbacks. Each takes the exception, the record and a logger; True skips the record."""

    consumer: ConsumerErrorCallback | None = None
    processing: ProcessingErrorCallback | None = None
    producer: ProducerErrorCallback | None = None


@dataclass(frozen=True)
class TaskSpec:
    """The settings of tasks that do not change while the application runs.

    It is plain data, except for users' functions. It contains no secrets: the process that opens clients for a task
    receives them separately.

    Attributes:
        topology: the operators.
        callbacks: the error callbacks.
        policies: what happens to records that fail and that no callback skips.
        live_tables: whether only the last rows of `print_table` are needed, because tables are redrawn in place.
        count_outputs: whether tasks count the outputs of the last operator of each branch.
        collect: whether those outputs are sent to the driver.
        processed_offsets: whether reports list each processed offset.
        transactional: whether commits are exactly-once.
        processing_timeout: seconds that a record may take; None for no limit.
        tracing: what is traced; None for nothing.
        snapshots: where snapshots of stores go, for `state`; None for nowhere.
        state: settings of stores; None if nothing is known about Kafka.
        group: the consumer group.
        topic_ids: Kafka's ids of input topics and repartition topics at the start.
        run_id: unique id of each run of an application.
        commit_metadata: composes the metadata of committed offsets.
        partition_counts: number of partitions of each topic but changelogs at the start.
        max_record_bytes: size of the largest record that the producers of tasks accept, in bytes.
        from_first: the topics that are read from their first record if nothing else is said of them: those that sources of
            the application write to, and those of tables.
        layout: the layout of the group before this start; None if there was none.
        positions: writes the positions of the inputs of tasks without a store; None if the group has no layout.
    """

    topology: Topology
    callbacks: ErrorCallbacks = field(default_factory=ErrorCallbacks)
    policies: ErrorPolicies = field(default_factory=ErrorPolicies)
    live_tables: bool = False
    count_outputs: bool = False
    collect: bool = False
    processed_offsets: bool = False
    transactional: bool = False
    processing_timeout: float | None = None
    tracing: Tracing | None = None
    snapshots: StateSnapshots | None = None
    state: StateSettings | None = None
    group: str = ""
    topic_ids: Mapping[str, str | None] = field(default_factory=dict)
    run_id: str = ""
    commit_metadata: CommitMetadata = field(default_factory=CommitMetadata)
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    max_record_bytes: int = CLIENT_MAX_BYTES
    from_first: frozenset[str] = frozenset()
    layout: GroupLayout | None = None
    positions: InputPositions | None = None

    def dumps(self) -> bytes:
        """Pickle the specification.

        Raises:
            UnpicklableOperatorError: if an operator or a callback cannot be pickled; names it.
        """
        try:
            return dump_functions(self)
        except Exception as error:
            raise UnpicklableOperatorError(self._find_culprit(error)) from error

    @staticmethod
    def loads(data: bytes) -> "TaskSpec":
        """Load a specification that `dumps` pickled."""
        spec = pickle.loads(data)
        if not isinstance(spec, TaskSpec):
            raise TypeError(f"expected a TaskSpec, got {type(spec).__name__}")
        return spec

    def _find_culprit(self, error: Exception) -> str:
        for node in self.topology.nodes:
            if not picklable(node.operator):
                return _describe_refusal(f"operator {node}", node.operator, error)
        for name in ("consumer", "processing", "producer"):
            callback = getattr(self.callbacks, name)
            if not picklable(callback):
                return _describe_refusal(f"the callback on_{name}_error", callback, error)
        return _describe_refusal("the application", None, error)


def _describe_refusal(what: str, item: Any, error: Exception) -> str:
    """Return the error message for an object that cannot be pickled."""
    found = captured(item)
    # Errors of StreamRT's own objects explain how to pickle them, which does not help for a function.
    own = found is not None and type(found.value).__module__.startswith("streamrt.")
    reasons = [] if own else [str(error)]
    if found is not None:
        reasons.insert(0, str(found))
    return (
        f"{what} cannot be sent to the processes that run it ({': '.join(reasons)}); tasks run in other processes, so "
        "functions must not hold clients, locks, open files or the application: create such objects inside the "
        "function, or in a module that it imports"
    )
