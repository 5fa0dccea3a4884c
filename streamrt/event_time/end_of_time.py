"""The end of time in a bounded run: which operators have no more event time to wait for, level by level.

The operators that wait for time have a *level*: the number of `group_by`s before them. When the inputs have ended and
everything on the way to a level is processed, the level is *reached*: each of its operators gets a final tick in each task,
and finishes. What it emits is consumed by the next level before that is reached.
"""

import threading
from collections.abc import Iterable, Mapping

from streamrt.errors import InvalidOperationError
from streamrt.runtime.driver.life.completion import levels_below
from streamrt.topology import TaskId, Topology
from streamrt.topology.graph import topic_of

__all__ = ["EndOfTime"]

Work = Mapping[TaskId, frozenset[int]]
"""The ids of operators by task."""


class EndOfTime:
    """The work still to be finished in a bounded run; safe to use from any thread.

    Example:
        >>> end = EndOfTime()
        >>> end.wanted, end.over
        (False, True)
    """

    def __init__(self) -> None:
        self.described = threading.Event()
        self.topology: Topology | None = None
        self.wanted = False
        self._lock = threading.Lock()
        self._levels: list[dict[TaskId, frozenset[int]]] = []
        self._left: dict[TaskId, frozenset[int]] = {}
        self._own: frozenset[TaskId] = frozenset()
        self._ready: frozenset[TaskId] = frozenset()
        self._error: BaseException | None = None

    # -- For the run ---------------------------------------------------------------------------------------------------

    def describe(self, topology: Topology, partitions: Mapping[str, int]) -> None:
        """Set what the run consists of.

        Args:
            topology: the operators, resolved.
            partitions: number of partitions of each topic that a dataframe reads, repartition topics included.
        """
        self.topology = topology
        self._levels = _levels_of(topology, partitions)
        self.described.set()

    def assign(self, tasks: Iterable[TaskId]) -> None:
        """Set the tasks that this process owns."""
        self._own = frozenset(tasks)

    def ready(self, tasks: Iterable[TaskId]) -> None:
        """Set the tasks that can be ticked."""
        self._ready = frozenset(tasks)

    @property
    def due(self) -> Work:
        """The operators that a final tick must reach now. None while another process owns one of the tasks.

        Otherwise results of that process would come after the next level has finished.
        """
        with self._lock:
            if not self._own.issuperset(self._left):
                return {}
            return {task: nodes for task, nodes in self._left.items() if task in self._ready}

    def report(self, ended: Work) -> None:
        """Note operators that have finished; their results are durable."""
        with self._lock:
            for task, nodes in ended.items():
                if task in self._left:
                    self._left[task] -= nodes
                    if not self._left[task]:
                        del self._left[task]

    def check(self) -> None:
        """Raise the error that ends the run, if there is one."""
        if self._error is not None:
            raise self._error

    # -- For what waits for the end -------------------------------------------------------------------------------------

    def reach(self, level: int) -> None:
        """Note that everything on the way to a level is processed.

        Args:
            level: the number of `group_by`s before it.
        """
        with self._lock:
            self.wanted = True
            self._left.update(self._levels[level] if level < len(self._levels) else {})

    @property
    def levels(self) -> int:
        """The number of levels."""
        return len(self._levels)

    @property
    def over(self) -> bool:
        """Whether all operators of the levels that are reached have finished."""
        return not self._left

    @property
    def left(self) -> frozenset[TaskId]:
        """The tasks with operators that have not finished."""
        with self._lock:
            return frozenset(self._left)

    @property
    def foreign(self) -> frozenset[TaskId]:
        """Those of them that this process does not own."""
        return self.left - self._own

    def fail(self, error: BaseException) -> None:
        """Let the run end with an error."""
        self._error = error

    def refuse_others(self) -> InvalidOperationError:
        """Return the error for a run that shares its group."""
        tasks = sorted(self.foreign)
        listed = ", ".join(map(str, tasks[:3])) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
        return InvalidOperationError(
            f"run(until='end') cannot finish the windows and timers of {listed}: another member of the consumer group owns "
            "these partitions; stop the other instances, and run again"
        )


def _levels_of(topology: Topology, partitions: Mapping[str, int]) -> list[dict[TaskId, frozenset[int]]]:
    """Return, for each level, the operators that have something to finish."""
    inputs = topology.outer_topics
    levels = levels_below(topology, inputs)
    level_of = {topic: number for number, topics in enumerate(levels) for topic in topics}
    found: list[dict[TaskId, frozenset[int]]] = [{} for _ in levels]
    for node in topology.nodes:
        if node.operator.ends():
            level = max(level_of[topic_of(root)] for root in topology.roots(node))
            stream = topology.stream_of(node)
            topic = next(iter(topology.streams[stream]))
            for number in range(partitions[topic]):
                task = TaskId(stream, number)
                found[level][task] = found[level].get(task, frozenset()) | {node.id}
    return found
