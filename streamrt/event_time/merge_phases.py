"""Which partitions a micro-batch query reads, where merges are behind exchanges.

A micro-batch has equal numbers of records of all partitions, and not equal spans of time. With a backlog, a merge would be
given records while older ones are still in front of the exchanges. So there are phases, each with its own query::

    UPSTREAM --(cut complete)--> MERGES --(read to the cut)--> ALL --(fell behind)--> UPSTREAM

Only ALL takes time where there is no backlog: the other two end before a query is started.
"""

from collections.abc import Iterable, Mapping
from enum import Enum

from streamrt.event_time.merge_cuts import MergeCuts
from streamrt.records import TopicPartition
from streamrt.topology import Topology

__all__ = ["MergePhase", "MergePhases"]


class MergePhase(Enum):
    """Phases of reading: see the module."""

    UPSTREAM = "upstream"
    MERGES = "merges"
    ALL = "all"


class MergePhases:
    """The phases of one application.

    Args:
        topology: the operators, resolved.
        cuts: makes the cuts.
    """

    def __init__(self, topology: Topology, cuts: MergeCuts) -> None:
        self._topology = topology
        self._cuts = cuts
        self._streams = cuts.streams
        self._upstream = frozenset[str]().union(*map(topology.topics_before, cuts.streams))
        self._merged = frozenset(topic for stream in cuts.streams for topic in topology.streams[stream])
        self._open: set[str] = set()
        self._ends: dict[TopicPartition, int] = {}
        self.phase = MergePhase.ALL
        self.restart()

    @property
    def needed(self) -> bool:
        """Whether any merge is behind exchanges."""
        return bool(self._streams)

    def restart(self) -> None:
        """Begin with the first phase, such as after an assignment."""
        self._open.clear()
        self._ends.clear()
        self.phase = MergePhase.UPSTREAM if self._streams else MergePhase.ALL

    def assign(self, own: Iterable[TopicPartition]) -> None:
        """Set the input partitions that this process owns."""
        self._cuts.assign(own)

    def left_out(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return those of some input partitions that are not read in this phase."""
        if self.phase is MergePhase.ALL:
            return frozenset()
        if self.phase is MergePhase.UPSTREAM:
            closed = {
                topic for each in self._streams if each not in self._open for topic in self._topology.streams[each]
            }
            return frozenset(each for each in partitions if each.topic in closed)
        return frozenset(each for each in partitions if each.topic in self._upstream - self._merged)

    def advance(self, positions: Mapping[TopicPartition, int], *, working: bool = True) -> bool:
        """Go on to the next phases as far as possible; return whether other partitions are to be read now.

        Args:
            positions: the next offset to process of the input partitions; all outputs of earlier records are durable.
            working: whether tasks can work; otherwise, no time passes for idle timeouts.
        """
        before = self.phase, len(self._open)
        if self.phase is MergePhase.UPSTREAM:
            self._cuts.note({each: at for each, at in positions.items() if each.topic in self._upstream})
            for stream in self._streams:
                if stream not in self._open:
                    self._cuts.begin(stream)
            for stream, ends in self._cuts.step(working=working).items():
                self._open.add(stream)
                self._ends |= ends
            if self._open.issuperset(self._streams):
                self.phase = MergePhase.MERGES
        if self.phase is MergePhase.MERGES and all(
            positions.get(each, end) >= end for each, end in self._ends.items() if each.topic in self._merged
        ):
            self.phase = MergePhase.ALL
        return before != (self.phase, len(self._open))

    def see_plan(self, read: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> bool:
        """Return whether the tasks in front of exchanges have fallen behind, so that phases begin again.

        Args:
            read: up to where a micro-batch has read.
            latest: the ends of the partitions when it was planned.
        """
        if self.phase is not MergePhase.ALL:
            return False
        return any(at < latest.get(each, at) for each, at in read.items() if each.topic in self._upstream)
