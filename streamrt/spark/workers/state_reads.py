"""Reads of state in Spark's Python workers, for state queries in micro-batch mode."""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.read_messages import TaskRead, TaskRows
from streamrt.slots.worker_process import SpecReference, WorkerProcess
from streamrt.spark.workers.executor import of_attempt
from streamrt.topology import TaskId

__all__ = ["ReadStores", "in_order"]


class ReadStores:
    """Reads stores, for `run_on_numbers`: numbers of tasks in, numbers of reads with their pickled answers out.

    Args:
        reference: reference to the task specification.
        reads: the reads.
        context: committed offsets and other data of the batch.
    """

    def __init__(self, reference: SpecReference, reads: Sequence[TaskRead], context: BatchContext) -> None:
        self._reference = reference
        self._context = context
        self._reads: dict[TaskId, list[tuple[int, TaskRead]]] = {}
        for number, read in enumerate(reads):
            self._reads.setdefault(read.task, []).append((number, read))

    @property
    def tasks(self) -> int:
        """Number of tasks that are read."""
        return len(self._reads)

    def __call__(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Read the stores of the tasks of the given numbers."""
        process = WorkerProcess.current(self._reference)
        context = of_attempt(self._context)
        tasks = list(self._reads)
        for number in numbers:
            wanted = self._reads[tasks[number]]
            found = process.tasks.read(tasks[number], [read for _, read in wanted], context)
            yield pickle.dumps([(at, rows) for (at, _), rows in zip(wanted, found, strict=True)])


def in_order(count: int, dumped: Iterable[bytes]) -> list[TaskRows]:
    """Return the answers of `ReadStores` in the order of the reads."""
    found: dict[int, Any] = {}
    for data in dumped:
        found.update(pickle.loads(data))
    return [found[number] for number in range(count)]
