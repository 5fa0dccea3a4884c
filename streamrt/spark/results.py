"""What comes of the tasks' work: takes their reports, and knows when enough is done."""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from streamrt.connectors.sinks.spark import DataFrameFactory
from streamrt.models import TopicPartition
from streamrt.runtime import Failure, Output, Report
from streamrt.runtime.display import Display
from streamrt.runtime.progress import Progress
from streamrt.runtime.sinks import DriverSinks
from streamrt.spark.settings import StopConditions
from streamrt.topology import Topology

logger = logging.getLogger("streamrt")


class Results:
    """Takes reports, from any thread: writes the driver's sinks, shows, counts, collects, and stops when a limit is reached.

    Args:
        topology: has the sinks.
        conditions: when to stop.
        stop: set when nothing more shall be processed.
        progress: kept up to date for whoever watches.
        display: shows what `print` and `print_table` put out.
        on_processed: called with topic, partition and offset of each processed record, by one thread at a time.
    """

    def __init__(
        self,
        topology: Topology,
        conditions: StopConditions,
        stop: threading.Event,
        progress: Progress,
        display: Display,
        on_processed: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.failure: Failure | None = None
        self.collected: list[Output] = []
        self._conditions = conditions
        self._stop = stop
        self._progress = progress
        self._display = display
        self._on_processed = on_processed
        self._sinks = DriverSinks(topology)
        self._outputs = 0
        self._last_record = 0.0
        self._idle_since: float | None = None
        self._lock = threading.RLock()
        # A sink may pause for long, and a callback may wait for something: neither keeps others from looking or stopping.
        self._writing = threading.Lock()
        self._telling = threading.Lock()

    def start(self, session: DataFrameFactory) -> None:
        """Start the sinks.

        Args:
            session: makes Spark DataFrames.

        Raises:
            SinkError: if one cannot be started.
        """
        self._sinks.start(session)

    def take(self, report: Report) -> None:
        """Do everything that must be done before the offsets of a report are committed.

        Raises:
            SinkError: if a sink failed, or the application was stopped while one paused; the records come again.
        """
        self.write(report)
        self.see(report)
        self.tell(report)

    def write(self, report: Report) -> None:
        """Write what the driver's sinks shall write.

        Raises:
            SinkError: if a sink failed, or the application was stopped while one paused; the records come again.
        """
        if report.sunk:
            with self._writing:
                self._sinks.write(report.sunk, self._stop)

    def see(self, report: Report, *, finished: bool = True) -> None:
        """Show, count and collect what a report brings.

        Args:
            report: the report.
            finished: whether it tells of a whole batch, and not of one that is under way.
        """
        with self._lock:
            self._progress.report(report, finished=finished)
            self._outputs += report.outputs
            self.collected += report.collected
            self._display.show(report.shown)
            if report.records > 0:
                self._last_record = time.monotonic()
            if report.failure is not None:
                self.fail(report.failure)
            if self.outputs_left() == 0:
                self._stop.set()

    def tell(self, report: Report) -> None:
        """Call the user's function for each processed record."""
        if self._on_processed is not None:
            with self._telling:
                self._tell(self._on_processed, report.processed)

    def fail(self, failure: Failure) -> None:
        """Note why the application must end; of several reasons the first stays."""
        with self._lock:
            self.failure = self.failure or failure
            self._stop.set()

    def assigned(
        self, positions: Mapping[TopicPartition, int], begun: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Note which partitions are read.

        Args:
            positions: all of them, and where they began.
            begun: those of them that begin now.
        """
        with self._lock:
            known = {**positions, **self._progress.snapshot().positions, **(begun or {})}
            self._progress.assigned({place: known[place] for place in positions})

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note committed offsets: they may lie above the last record, behind markers of transactions."""
        with self._lock:
            known = self._progress.snapshot().positions
            self._progress.processed_to({place: at for place, at in offsets.items() if at > known.get(place, at)})

    def outputs_left(self) -> int | None:
        """Return how many outputs may still come; None for no limit."""
        return max(0, self._conditions.count - self._outputs) if self._conditions.count else None

    def waited_enough(self) -> bool:
        """Tell, while nothing is left to process, whether the time-out for new records is over."""
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        limit = self._conditions.timeout_s
        return limit > 0 and now - max(self._idle_since, self._last_record) >= limit

    def tick(self) -> None:
        """Print tables that have waited for rows long enough; call it now and then."""
        with self._lock:
            self._display.tick()

    def close(self) -> None:
        """Print what is left and give the terminal back."""
        with self._lock:
            self._display.close()

    def raise_failure(self) -> None:
        """Raise the reason why the application had to end, if there is one."""
        if self.failure is not None:
            logger.debug("%s", self.failure.traceback)
            raise self.failure.error() from self.failure.cause

    def _tell(self, callback: Callable[[str, int, int], None], processed: Mapping[TopicPartition, list[int]]) -> None:
        for place, offsets in processed.items():
            for offset in offsets:
                try:
                    callback(place.topic, place.partition, offset)
                except BaseException as error:  # noqa: BLE001 - it ends the application, in the thread that called run()
                    message = (
                        f"on_message_processed failed for {place} at offset {offset}: {type(error).__name__}: {error}"
                    )
                    cause = error if isinstance(error, Exception) else None
                    self.fail(Failure("callback", place, offset, message, cause))
