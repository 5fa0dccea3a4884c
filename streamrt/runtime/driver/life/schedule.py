"""The schedule of the driver's offset commits."""

from dataclasses import dataclass, field

from streamrt.records import Positions, TopicPartition


@dataclass
class CommitSchedule:
    """Decides when the driver commits offsets to the consumer group.

    Attributes:
        interval: seconds between two commits.
        every: maximum number of records between two commits; 0 for no limit.
    """

    interval: float
    every: int
    _last: float = 0.0
    _records: int = 0
    _processed: Positions = field(default_factory=Positions)
    _committed: Positions = field(default_factory=Positions)

    def start(self, offsets: dict[TopicPartition, int], now: float) -> None:
        """Begin with the committed offsets of a new assignment."""
        self._committed = Positions(offsets)
        self._processed = Positions(offsets)
        self._records = 0
        self._last = now

    def processed(self, offsets: dict[TopicPartition, int], records: int) -> None:
        """Note progress: offsets of the next records to process, and the number of records processed."""
        self._processed.advance(offsets)
        self._records += records

    def pending(self) -> dict[TopicPartition, int]:
        """Return the offsets that a commit would move."""
        return {
            partition: offset
            for partition, offset in self._processed.items()
            if offset != self._committed.get(partition)
        }

    def due(self, now: float) -> bool:
        """Return whether a commit is due."""
        if not self.pending():
            return False
        return now - self._last >= self.interval or 0 < self.every <= self._records

    def quiet(self, now: float) -> bool:
        """Return whether an interval has passed without offsets to commit."""
        return not self.pending() and now - self._last >= self.interval

    def committed(self, offsets: dict[TopicPartition, int], now: float) -> None:
        """Note that a commit succeeded."""
        self._committed.advance(offsets)
        self._records = 0
        self._last = now
