"""The results of tasks: handles their reports, and detects when a limit is reached."""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from streamrt.connectors.sinks.spark import DataFrameFactory
from streamrt.records import TopicPartition
from streamrt.runs.runner_settings import StopConditions
from streamrt.runtime.driver.observation.display import Display
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.runtime.report import Failure, Output, Report
from streamrt.runtime.tasks.chain.task_sinks import DriverSinks
from streamrt.topology import TaskId, Topology

logger = logging.getLogger("streamrt")


class ReportHandler:
    """Handles reports, from any thread: writes the driver's sinks, shows, counts, collects, and stops at a limit.

    Args:
        topology: has the sinks.
        conditions: when to stop.
        stop: set when no more records must be processed.
        progress: updated for observers.
        display: shows the output of `print` and `print_table`.
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
        self._topology = topology
        self._sinks = DriverSinks(topology)
        self._outputs = 0
        self._last_record = 0.0
        self._idle_since: float | None = None
        self._lock = threading.RLock()
        # A sink may pause for long, and a callback may block: other threads must still be able to look or stop.
        self._writing = threading.Lock()
        self._telling = threading.Lock()

    def start(self, session: DataFrameFactory | None) -> None:
        """Start the sinks.

        Args:
            session: makes Spark DataFrames; None without Spark.

        Raises:
            SinkError: if a sink cannot be started.
        """
        self._sinks.start(session)

    def handle(self, report: Report) -> None:
        """Do all that must precede the commit of a report's offsets.

        Raises:
            SinkError: if a sink failed, or the application was stopped while one paused; the records are delivered again.
        """
        self.write(report)
        self.see(report)
        self.tell(report)

    def write(self, report: Report) -> None:
        """Write the report's values to the driver's sinks.

        Raises:
            SinkError: if a sink failed, or the application was stopped while one paused; the records are delivered again.
        """
        if report.sunk:
            with self._writing:
                self._sinks.write(report.sunk, self._stop)

    def see(self, report: Report, *, finished: bool = True) -> None:
        """Show, count and collect the results in a report.

        Args:
            report: the report.
            finished: whether the report covers a whole batch, not one in progress.
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
                self._report_processed(self._on_processed, report.processed)

    def fail(self, failure: Failure) -> None:
        """Store the failure that must end the application; the first one counts."""
        with self._lock:
            self.failure = self.failure or failure
            self._stop.set()

    def assigned(
        self, positions: Mapping[TopicPartition, int], begun: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Store the partitions that are read.

        Args:
            positions: all of them, with their start positions.
            begun: those that begin now.
        """
        with self._lock:
            known = {**positions, **self._progress.snapshot().positions, **(begun or {})}
            self._progress.assigned({partition: known[partition] for partition in positions})
            self._progress.meters.assigned(map(self._topology.task, positions))

    def rebalanced(self) -> None:
        """Count an assignment that a member got from the group."""
        self._progress.meters.rebalanced()

    def watermarked(self, watermarks: Mapping[TaskId, Mapping[str, int]]) -> None:
        """Note the watermarks, in milliseconds, by task and store."""
        self._progress.meters.watermarked(watermarks)

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store committed offsets: they may be higher than the last record, after transaction markers."""
        with self._lock:
            known = self._progress.snapshot().positions
            self._progress.processed_to(
                {partition: at for partition, at in offsets.items() if at > known.get(partition, at)}
            )

    def outputs_left(self) -> int | None:
        """Return the number of outputs that may still come; None for no limit."""
        return max(0, self._conditions.count - self._outputs) if self._conditions.count else None

    def waited_enough(self) -> bool:
        """Return, while there is nothing to process, whether the timeout for new records has passed."""
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        limit = self._conditions.timeout_s
        return limit > 0 and now - max(self._idle_since, self._last_record) >= limit

    def tick(self) -> None:
        """Print tables that have waited for rows long enough; call it regularly."""
        with self._lock:
            self._display.tick()

    def close(self) -> None:
        """Print the rest, release the terminal, and close the sinks."""
        with self._lock:
            self._display.close()
        self._sinks.close()

    def raise_failure(self) -> None:
        """Raise the failure that ended the application, if any."""
        if self.failure is not None:
            logger.debug("%s", self.failure.traceback)
            raise self.failure.error() from self.failure.cause

    def _report_processed(
        self, callback: Callable[[str, int, int], None], processed: Mapping[TopicPartition, list[int]]
    ) -> None:
        for partition, offsets in processed.items():
            for offset in offsets:
                try:
                    callback(partition.topic, partition.partition, offset)
                except BaseException as error:  # noqa: BLE001 - it ends the application, in the thread that called run()
                    where = f"{partition} at offset {offset}"
                    message = f"on_message_processed failed for {where}: {type(error).__name__}: {error}"
                    cause = error if isinstance(error, Exception) else None
                    self.fail(Failure("callback", partition, offset, message, cause))
