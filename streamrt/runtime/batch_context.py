"""What tasks must know to begin with a batch."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamrt.models import TopicPartition

__all__ = ["BatchContext"]


@dataclass(frozen=True)
class BatchContext:
    """What a batch must know.

    Attributes:
        positions: offsets below which records have been processed already, by input partition; by default 0 for each.
        seconds: how long after its first record a micro-batch stops between two records; in resident tasks, how long records
            are processed before the task looks for other things to do.
        outputs: how many outputs may still come; None for no limit.
        workers: the process that made the last commit, by task.
        stateful: partitions whose committed offsets tell that they have state; those of several topics that have some in
            common are named as in `Topology.scopes`.
        now: wall clock, in milliseconds since the Unix epoch.
        watermarks: watermarks by task and store, where they are wanted and known.
        behind: tasks that may read records again which watermarks were made of before they were committed. Time passes for
            them as far as their own records bring it: otherwise these would be late.
        sent: the highest event time that each task has sent into exchanges before, by task and topic.
        claims: at least once, the numbers of the claims of input partitions with state.
        attempt: number of the attempt at the work, higher than that of each attempt before it under the same claims.
        records: how many records the batch may process; None for no limit.
    """

    positions: Mapping[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    seconds: float = float("inf")
    outputs: int | None = None
    workers: Mapping[TopicPartition, str] = field(default_factory=dict)
    stateful: frozenset[TopicPartition] = frozenset()
    now: int = 0
    watermarks: Mapping[TopicPartition, Mapping[str, int]] = field(default_factory=dict)
    behind: frozenset[TopicPartition] = frozenset()
    sent: Mapping[TopicPartition, Mapping[str, int]] = field(default_factory=dict)
    claims: Mapping[TopicPartition, int] = field(default_factory=dict)
    attempt: int = 0
    records: int | None = None

    def position(self, place: TopicPartition) -> int:
        """Return the offset below which all records of an input partition are processed.

        Raises:
            RuntimeError: if nobody has said so. To take 0 instead would make state claim to be there.
        """
        try:
            return self.positions[place]
        except KeyError:
            raise RuntimeError(f"the task of {place} is to run, but nobody knows where the group is in it") from None
