"""Positions in partitions, which never fall unless a partition begins again."""

from collections.abc import Iterable, Iterator, Mapping

from streamrt.records.partitions import TopicPartition

__all__ = ["Positions"]


class Positions(Mapping[TopicPartition, int]):
    """The next offset to process of each partition. `advance` only raises it; `begin` sets it.

    Several parties report how far a partition is processed, and not in order: the report of a commit ends behind the
    last record, and may arrive after a report of the end of the partition, which lies behind a transaction marker. So a
    lower position is outdated. It counts only where a partition is assigned or rewound, and then it is told to `begin`.

    Args:
        start: the first positions.

    Example:
        >>> first = TopicPartition("orders", 0)
        >>> positions = Positions({first: 7})
        >>> positions.advance({first: 6}), positions[first]
        ({}, 7)
        >>> positions.advance({first: 9}), positions[first]
        ({TopicPartition(topic='orders', partition=0): 9}, 9)
        >>> positions.begin({first: 6})
        >>> positions[first]
        6
    """

    def __init__(self, start: Mapping[TopicPartition, int] | None = None) -> None:
        self._next: dict[TopicPartition, int] = dict(start or {})

    def __getitem__(self, partition: TopicPartition) -> int:
        return self._next[partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._next)

    def __len__(self) -> int:
        return len(self._next)

    def __repr__(self) -> str:
        return f"Positions({self._next})"

    def advance(self, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Raise the positions of partitions, also of new ones; return those that were raised."""
        raised = {each: at for each, at in reached.items() if each not in self._next or at > self._next[each]}
        self._next.update(raised)
        return raised

    def begin(self, start: Mapping[TopicPartition, int]) -> None:
        """Set the positions of partitions that are assigned or rewound; they may be lower than before."""
        self._next.update(start)

    def keep(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget all partitions but these."""
        kept = set(partitions)
        self._next = {each: at for each, at in self._next.items() if each in kept}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions, until they begin or advance again."""
        for each in partitions:
            self._next.pop(each, None)
