"""The progress of watermarks through a repartition topic.

A watermark passes a topic by a *barrier*: the end offsets of its partitions, requested after the watermark was known.
All records that the watermark covers are below these offsets. The watermark therefore holds behind the topic as soon as
a partition has been read up to its end offset.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamrt.records import TopicPartition
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
        >>> passage = Passage()
        >>> passage.add(1_000, {0: 7})
        >>> passage.advance(0, 6), passage.passed(0)
        (None, None)
        >>> passage.advance(0, 7), passage.passed(0)
        (None, 1000)
    """

    def __init__(self) -> None:
        self.newest: int | None = None
        self._waiting: list[tuple[int, Mapping[int, int]]] = []
        self._passed: dict[int, int] = {}
        self._positions: dict[int, int] = {}

    def add(self, watermark: int, ends: Mapping[int, int]) -> None:
        """Let a watermark pass in each partition that is read up to its end offset.

        Args:
            watermark: the watermark, in milliseconds; higher than the previous one.
            ends: end offset by partition.
        """
        self.newest = watermark
        self._waiting.append((watermark, ends))
        if len(self._waiting) > _MOST:
            # A partition with a large backlog passes fewer intermediate watermarks, but always the last one.
            self._waiting = [*self._waiting[:-1:2], self._waiting[-1]]
        for partition, position in self._positions.items():
            self.advance(partition, position)

    def advance(self, partition: int, position: int) -> None:
        """Note that all records of a partition below `position` are processed."""
        self._positions[partition] = position
        reached = [watermark for watermark, ends in self._waiting if position >= ends.get(partition, position + 1)]
        if reached:
            self._passed[partition] = max(reached[-1], self._passed.get(partition, reached[-1]))
            newest = min((self._passed.get(each, reached[0] - 1) for each in self._positions), default=0)
            self._waiting = [each for each in self._waiting if each[0] > newest]

    def passed(self, partition: int) -> int | None:
        """Return the latest watermark, in milliseconds, that has passed in a partition; None before the first."""
        return self._passed.get(partition)

    def keep(self, partitions: Iterable[int]) -> None:
        """Forget all partitions but these: other instances own the rest now."""
        kept = set(partitions)
        self._passed = {each: at for each, at in self._passed.items() if each in kept}
        self._positions = {each: at for each, at in self._positions.items() if each in kept}
        if not kept:
            self._waiting.clear()
            self.newest = None
