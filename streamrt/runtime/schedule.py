"""When the driver commits offsets to the consumer group."""

from dataclasses import dataclass, field

from streamrt.models import TopicPartition


@dataclass
class CommitSchedule:
    """Decides when the driver commits offsets to the consumer group.

    Attributes:
        interval: seconds between two commits.
        every: commit after this many records already; 0 leaves it to the interval.
    """

    interval: float
    every: int
    _last: float = 0.0
    _records: int = 0
    _processed: dict[TopicPartition, int] = field(default_factory=dict)
    _committed: dict[TopicPartition, int] = field(default_factory=dict)

    def start(self, offsets: dict[TopicPartition, int], now: float) -> None:
        """Begin with the committed offsets of a new assignment."""
        self._committed = dict(offsets)
        self._processed = dict(offsets)
        self._records = 0
        self._last = now

    def processed(self, offsets: dict[TopicPartition, int], records: int) -> None:
        """Note progress: offsets of the next records to process, and how many records it took."""
        for partition, offset in offsets.items():
            self._processed[partition] = max(offset, self._processed.get(partition, offset))
        self._records += records

    def pending(self) -> dict[TopicPartition, int]:
        """Return the offsets that a commit would move."""
        return {place: offset for place, offset in self._processed.items() if offset != self._committed.get(place)}

    def processed_to(self, place: TopicPartition) -> int:
        """Return the offset of the next record to process, -1 if it is not known."""
        return self._processed.get(place, -1)

    def due(self, now: float) -> bool:
        """Tell whether it is time to commit."""
        if not self.pending():
            return False
        return now - self._last >= self.interval or 0 < self.every <= self._records

    def quiet(self, now: float) -> bool:
        """Tell whether nothing waits for a commit although an interval has passed."""
        return not self.pending() and now - self._last >= self.interval

    def committed(self, offsets: dict[TopicPartition, int], now: float) -> None:
        """Note that a commit succeeded."""
        self._committed.update(offsets)
        self._records = 0
        self._last = now
