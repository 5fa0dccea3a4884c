"""The order in which work becomes official, and when offsets are committed. Nothing else decides about either.

At-least-once, the steps of a task over its offset ranges:

1. process the records; outputs are handed to the writer as they arise;
2. flush the writer: every output is durable, or the ranges do not advance;
3. report the ranges;
4. the driver commits the offsets of reported ranges to the consumer group.

A crash before 4 repeats records, and loses none.
"""

from dataclasses import dataclass, field

from streamrt.models import OffsetRange, TopicPartition
from streamrt.runtime.collector import RecordWriter
from streamrt.runtime.report import Failure, Report
from streamrt.runtime.spec import ErrorCallbacks
from streamrt.runtime.task import logger


def make_durable(report: Report, writer: RecordWriter, callbacks: ErrorCallbacks) -> None:
    """Flush the outputs of a task; where one failed for good, take back the progress that the report claims.

    Args:
        report: what the task did; changed in place.
        writer: where its outputs went.
        callbacks: `on_producer_error` may choose to do without a record that failed.
    """
    for error in writer.flush():
        refusal = _refusal(error, callbacks)
        if refusal is None:
            continue
        kind, message, cause = refusal
        places = list(report.ranges)
        text = f"{message} (while processing {', '.join(map(str, places))})"
        report.failure = report.failure or Failure(kind, places[0], None, text, cause)
        report.ranges = {place: OffsetRange(*place, done.start, done.start) for place, done in report.ranges.items()}
        report.processed = {}
        report.complete = False
        return


def _refusal(error: Exception, callbacks: ErrorCallbacks) -> tuple[str, str, Exception] | None:
    """Return kind, message and cause of the failure that a lost delivery is; None if the user can do without."""
    if callbacks.producer is None:
        return "producer", str(error), error
    try:
        # Deliveries fail long after the input record was processed: there is no record to tell about.
        skipped = bool(callbacks.producer(error, None, logger))
    except Exception as raised:  # noqa: BLE001 - whatever it is, the application stops
        reason = f"{type(raised).__name__}: {raised}"
        return "callback", f"the callback on_producer_error itself failed on {error!r}: {reason}", raised
    return None if skipped else ("producer", str(error), error)


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
