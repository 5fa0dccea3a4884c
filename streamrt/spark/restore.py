"""The restore of state before a query begins, in slices: the driver shows progress and can stop in between."""

import logging
import sys
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from streamrt.models import TopicPartition
from streamrt.runtime import BatchContext, Report
from streamrt.runtime.report import RestoredPart
from streamrt.spark.executor import RestoreStores, SpecReference
from streamrt.spark.job import run_on_numbers
from streamrt.spark.reports import merge_reports
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
    tasks: Iterable[TopicPartition],
    context: BatchContext,
    go_on: Callable[[], bool],
) -> Report:
    """Restore the stores of tasks, as many at a time as there are slots.

    Args:
        environment: where to run; its workers share the state directory.
        reference: what tasks do.
        tasks: the tasks.
        context: where the group is, and how long a slice takes.
        go_on: asked between slices.

    Returns:
        See `restore_in_slices`.
    """

    def run(shares: Sequence[Sequence[TopicPartition]]) -> Report:
        work = RestoreStores(reference, shares, context)
        return merge_reports(run_on_numbers(environment.session.sparkContext, work, len(shares), len(shares)))

    display = RestoreDisplay()
    try:
        return restore_in_slices(tasks, environment.slots, run, go_on, display.update)
    finally:
        display.close()


def restore_in_slices(
    tasks: Iterable[TopicPartition],
    slots: int,
    run: Callable[[Sequence[Sequence[TopicPartition]]], Report],
    go_on: Callable[[], bool],
    show: Callable[[Iterable[tuple[tuple[TopicPartition, str], RestoredPart]]], None],
) -> Report:
    """Run one slice after the other until all tasks are restored.

    A slice takes as long for two hundred tasks as for two: each slot has a share of those that are left, and stops when its
    time is over. What was not begun comes in a later slice, and is never begun if the application stops, or its partitions
    are wanted back: exactly once, beginning takes the transactional id, which may be another's by then.

    Args:
        tasks: the tasks.
        slots: how many work at the same time.
        run: restores the shares for the time of a slice.
        go_on: asked between slices.
        show: is given the progress of some stores.

    Returns:
        The sum of the reports; complete, or with the failure or the trouble that ended the restore. Tasks whose stores are
        locked are left out.
    """
    left = sorted(tasks)
    total = Report()
    while left and go_on():
        count = min(slots, len(left))
        step = run([left[first::count] for first in range(count)])
        show(sorted(step.restores.items()))
        total.workers.update(step.workers)
        total.restored |= step.restored
        total.locked.update(step.locked)
        total.failure, total.interrupted = step.failure, step.interrupted
        if step.failure is not None or step.interrupted:
            break
        begun = {task for task, _ in step.restores}
        left = [task for task in left if task not in step.restored and task not in step.locked]
        left.sort(key=lambda task: task not in begun)
    total.complete = not left and not total.locked
    return total
