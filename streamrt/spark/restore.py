"""The restore of state before a query begins, in slices: the driver shows progress and can stop in between."""

import logging
import sys
from collections.abc import Callable, Iterable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from streamrt.models import TopicPartition
from streamrt.runtime import BatchContext, Report
from streamrt.runtime.report import RestoredPart
from streamrt.spark.arrow import REPORT_SCHEMA
from streamrt.spark.executor import RestoreStores, SpecReference
from streamrt.spark.reports import load_report
from streamrt.spark.session import SparkEnvironment

logger = logging.getLogger("streamrt")

SLICE_S = 2.0
"""How long the tasks of one slice restore; then the driver looks around."""


class RestoreDisplay:
    """Shows how far restores are: bars with the time left on a terminal, log lines elsewhere."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._ids: dict[tuple[TopicPartition, str], TaskID] = {}
        self._offsets: dict[tuple[TopicPartition, str], int] = {}

    def update(self, parts: Iterable[tuple[tuple[TopicPartition, str], RestoredPart]]) -> None:
        """Show the progress of some stores."""
        for name, part in parts:
            # A later slice begins where the former ended: its own count starts at 0 again.
            before = self._offsets.get(name, 0)
            done, total = before + part.done, before + part.total
            self._offsets[name] = done
            if part.total == 0:
                continue
            place, store = name
            if not sys.stderr.isatty():
                share = 100 if part.finished else 100 * done // max(1, total)
                logger.info("restoring store %r of %s: %d %% of %d changelog offsets", store, place, share, total)
                continue
            bars = self._start()
            if name not in self._ids:
                self._ids[name] = bars.add_task(f"restoring {store!r} of {place}", total=total)
            bars.update(self._ids[name], completed=total if part.finished else done, total=total)

    def close(self) -> None:
        """Give the terminal back."""
        if self._bars is not None:
            self._bars.stop()

    def _start(self) -> Progress:
        if self._bars is None:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bars.start()
        return self._bars


def restore(
    environment: SparkEnvironment,
    reference: SpecReference,
    places: Iterable[TopicPartition],
    context: BatchContext,
    go_on: Callable[[], bool],
) -> Report:
    """Restore the stores of tasks, as many at a time as there are slots.

    Args:
        environment: where to run; its workers share the state directory.
        reference: what tasks do.
        places: the tasks.
        context: where the group is.
        go_on: asked between slices.

    Returns:
        The last report: complete, or with the failure or interruption that ended the restore.
    """
    left = sorted(places)
    total = Report()
    display = RestoreDisplay()
    try:
        while left and go_on():
            numbers = environment.session.range(0, len(left), 1, len(left))
            rows = numbers.mapInArrow(RestoreStores(reference, left, context), REPORT_SCHEMA).collect()
            step = Report()
            for row in rows:
                step.merge(load_report(bytes(row[0])))
            display.update(sorted(step.restores.items()))
            total.workers.update(step.workers)
            total.failure, total.interrupted = step.failure, step.interrupted
            if step.failure is not None or step.interrupted:
                break
            unfinished = {place for (place, _), part in step.restores.items() if not part.finished}
            left = [place for place in left if place in unfinished]
    finally:
        display.close()
    total.complete = not left
    return total
