"""How far watermarks have come through a repartition topic.

A watermark passes a topic by a *barrier*: the ends of its partitions, asked for after the watermark was known. All records
that the watermark stands for are below these ends. So it holds behind the topic as soon as a partition has been read up to
its end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamrt.models import TopicPartition
from streamrt.topology import WatermarkStrategy

__all__ = ["Barrier", "Passage"]

_MOST = 16


@dataclass(frozen=True)
class Barrier:
    """A question: where do repartition topics end now, so that watermarks can pass them?

    Attributes:
        watermarks: those that shall pass, by topic and strategy.
        partitions: the partitions whose ends, whatever transactions are open, must be asked for.
    """

    watermarks: Mapping[tuple[str, WatermarkStrategy], int]
    partitions: frozenset[TopicPartition]


class Passage:
    """The way of one watermark through one repartition topic.

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
        """Let a watermark pass as soon as partitions are read up to these offsets.

        Args:
            watermark: the watermark, in milliseconds; higher than the last one.
            ends: offset by partition.
        """
        self.newest = watermark
        self._waiting.append((watermark, ends))
        if len(self._waiting) > _MOST:
            # A partition far behind finds fewer steps on its way, and the last one all the same.
            self._waiting = [*self._waiting[:-1:2], self._waiting[-1]]
        for partition, position in self._positions.items():
            self.advance(partition, position)

    def advance(self, partition: int, position: int) -> None:
        """Note that all records of a partition below an offset are processed."""
        self._positions[partition] = position
        reached = [watermark for watermark, ends in self._waiting if position >= ends.get(partition, position + 1)]
        if reached:
            self._passed[partition] = max(reached[-1], self._passed.get(partition, reached[-1]))
            newest = min((self._passed.get(each, reached[0] - 1) for each in self._positions), default=0)
            self._waiting = [each for each in self._waiting if each[0] > newest]

    def passed(self, partition: int) -> int | None:
        """Return the watermark that has passed in a partition; None before the first."""
        return self._passed.get(partition)

    def keep(self, partitions: Iterable[int]) -> None:
        """Forget all other partitions: they are others' now."""
        kept = set(partitions)
        self._passed = {each: at for each, at in self._passed.items() if each in kept}
        self._positions = {each: at for each, at in self._positions.items() if each in kept}
        if not kept:
            self._waiting.clear()
            self.newest = None
