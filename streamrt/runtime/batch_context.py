"""The information that the driver sends to tasks for a batch."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamrt.records import TopicPartition
from streamrt.topology import TaskId

__all__ = ["BatchContext"]


@dataclass(frozen=True)
class BatchContext:
    """Start offsets, limits, times and watermarks of a batch.

    `positions`, `last_committer`, `stateful` and `sent` are read when a task opens, so each micro-batch has them. A resident
    task that is open already knows them itself.

    Attributes:
        positions: offset of the next record to process, by input partition; by default 0 for each.
        time_limit_s: length of the time slice, in seconds. A micro-batch stops between two records this long after its first
            record; a resident task processes records this long before it does other work.
        output_limit: maximum number of further outputs; None for no limit.
        last_committer: the process that made the last commit, by task.
        stateful: partitions whose commit metadata names a store; those of merged topics are named as in
            `Topology.scopes`.
        now: wall clock, in milliseconds since the Unix epoch.
        watermarks: watermarks in milliseconds, by task and store, as far as they are needed and known.
        others: the watermark of all other partitions, without the own one, in the same form: see `Tick`.
        sent: the highest event time that each task has sent into exchanges before, by task and topic.
        claims: with at-least-once, the numbers of the claims of input partitions with state.
        attempt: number of the processing attempt, higher than all earlier ones under the same claims.
        record_limit: maximum number of records that the batch may process; None for no limit.
        number: number of the micro-batch; None for resident tasks, which count their commits themselves.
        final: the ids of the operators for which the inputs of a bounded run have ended, by task.
    """

    positions: Mapping[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    time_limit_s: float = float("inf")
    output_limit: int | None = None
    last_committer: Mapping[TaskId, str] = field(default_factory=dict)
    stateful: frozenset[TopicPartition] = frozenset()
    now: int = 0
    watermarks: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    sent: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    claims: Mapping[TopicPartition, int] = field(default_factory=dict)
    attempt: int = 0
    record_limit: int | None = None
    number: int | None = None
    final: Mapping[TaskId, frozenset[int]] = field(default_factory=dict)
    others: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to process in an input partition.

        Raises:
            RuntimeError: if the context has no offset for it. With 0 instead, state would record a wrong position.
        """
        try:
            return self.positions[partition]
        except KeyError:
            raise RuntimeError(f"the task of {partition} cannot run: the driver sent no start offset for it") from None
