"""The progress of watermarks through a repartition topic.

A watermark passes a topic by a *barrier*: the end offsets of its partitions, requested after the watermark was known.
All records that the watermark covers are below these offsets. The watermark therefore holds behind the topic as soon as
a partition has been read up to its end offset.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamrt.records import Positions, TopicPartition
from streamrt.topology import WatermarkStrategy

__all__ = ["Barrier", "Passage"]

_MOST = 16


@dataclass(frozen=True)
class Barrier:
    """A request for the current end offsets of repartition topics, which lets watermarks pass them.

    Attributes:
        watermarks: the watermarks to pass, in milliseconds, by topic and strategy.
        partitions: the partitions whose high watermarks are needed. Records of open transactions count.
    """

    watermarks: Mapping[tuple[str, WatermarkStrategy], int]
    partitions: frozenset[TopicPartition]


class Passage:
    """The passage of one watermark through one repartition topic.

    Example:
        >>> passage, partition = Passage(), TopicPartition("repartition", 0)
        >>> passage.begin({partition: 0})
        >>> passage.add(1_000, {partition: 7})
        >>> passage.advance({partition: 6})
        False
        >>> passage.passed(partition), passage.needs(1_000)
        (None, False)
        >>> passage.advance({partition: 7})
        True
        >>> passage.passed(partition), passage.needs(1_001)
        (1000, True)
    """

    def __init__(self) -> None:
        # Ascending, because a barrier is only added for a watermark that is higher than all that wait.
        self._waiting: list[tuple[int, Mapping[TopicPartition, int]]] = []
        self._passed: dict[TopicPartition, int] = {}
        self._positions = Positions()

    def needs(self, watermark: int) -> bool:
        """Return whether a watermark needs another barrier to pass in all partitions with a known position.

        A partition that comes from elsewhere, or is rewound, has passed nothing here, so it needs one even if the watermark
        has not risen.
        """
        if self._waiting and self._waiting[-1][0] >= watermark:
            return False
        return not self._positions or any(self._passed.get(each, watermark - 1) < watermark for each in self._positions)

    def add(self, watermark: int, ends: Mapping[TopicPartition, int]) -> None:
        """Let a watermark pass in each partition that is read up to its end offset.

        Args:
            watermark: the watermark, in milliseconds, for which there was a need.
            ends: end offset by partition.
        """
        if self._waiting and self._waiting[-1][0] >= watermark:
            return
        self._waiting.append((watermark, ends))
        if len(self._waiting) > _MOST:
            # A partition with a large backlog passes fewer intermediate watermarks, but always the last one.
            self._waiting = [*self._waiting[:-1:2], self._waiting[-1]]
        self._mark_passed(self._positions)

    def begin(self, start: Mapping[TopicPartition, int]) -> None:
        """Set the positions of partitions that are assigned or rewound. A rewound one has passed nothing."""
        for partition, position in start.items():
            if position < self._positions.get(partition, position):
                self._passed.pop(partition, None)
        self._positions.begin(start)
        self._mark_passed(start)

    def advance(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Note that all records of partitions below their positions are processed; return whether a watermark has passed."""
        return self._mark_passed(self._positions.advance(positions))

    def passed(self, partition: TopicPartition) -> int | None:
        """Return the latest watermark, in milliseconds, that has passed in a partition; None before the first."""
        return self._passed.get(partition)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions, until they begin or advance again."""
        gone = set(partitions)
        self.keep(each for each in self._positions if each not in gone)

    def keep(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget all partitions but these: other instances own the rest now."""
        kept = set(partitions)
        self._passed = {each: at for each, at in self._passed.items() if each in kept}
        self._positions.keep(kept)
        if not kept:
            self._waiting.clear()

    def _mark_passed(self, partitions: Iterable[TopicPartition]) -> bool:
        if not self._waiting:
            return False
        passed = False
        for each in partitions:
            position = self._positions[each]
            reached = [mark for mark, ends in self._waiting if position >= ends.get(each, position + 1)]
            if reached:
                self._passed[each] = max(reached[-1], self._passed.get(each, reached[-1]))
                passed = True
        if self._positions.keys() <= self._passed.keys():
            slowest = min((self._passed[each] for each in self._positions), default=None)
            self._waiting = [each for each in self._waiting if slowest is None or each[0] > slowest]
        return passed
