"""The restore of state before a query begins, in slices between which the driver shows progress and can stop."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from streamrt.runs.restore_display import RestoreDisplay
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.report import Report, RestoredPart
from streamrt.slots.reports import merge_reports
from streamrt.slots.worker_process import SpecReference
from streamrt.spark.sessions.job import run_on_numbers
from streamrt.spark.sessions.spark_session import SparkEnvironment
from streamrt.spark.workers.executor import RestoreStores
from streamrt.topology import TaskId

SLICE_S = 2.0
"""Duration of one slice of a restore; after it the driver checks for a stop."""


def restore(
    environment: SparkEnvironment,
    reference: SpecReference,
    tasks: Iterable[TaskId],
    context: BatchContext,
    go_on: Callable[[], bool],
    observe: Callable[[Mapping[tuple[TaskId, str], RestoredPart]], None],
) -> Report:
    """Restore the stores of tasks, as many at a time as there are slots.

    Args:
        environment: the Spark environment; its workers share the state directory.
        reference: reference to the task specification.
        tasks: the tasks.
        context: positions of the group, and the duration of a slice.
        go_on: returns whether to continue; called between slices.
        observe: receives the progress of some stores.

    Returns:
        See `restore_in_slices`.
    """

    def run(shares: Sequence[Sequence[TaskId]]) -> Report:
        work = RestoreStores(reference, shares, context)
        return merge_reports(run_on_numbers(environment.session.sparkContext, work, len(shares), len(shares)))

    display = RestoreDisplay()

    def show(parts: Iterable[tuple[tuple[TaskId, str], RestoredPart]]) -> None:
        progress = dict(parts)
        observe(progress)
        display.update(progress.items())

    try:
        return restore_in_slices(tasks, environment.slots, run, go_on, show)
    finally:
        display.close()


def restore_in_slices(
    tasks: Iterable[TaskId],
    slots: int,
    run: Callable[[Sequence[Sequence[TaskId]]], Report],
    go_on: Callable[[], bool],
    show: Callable[[Iterable[tuple[tuple[TaskId, str], RestoredPart]]], None],
) -> Report:
    """Run one slice after the other until all tasks are restored.

    A slice takes as long for two hundred tasks as for two: each slot gets a share of the remaining tasks, and stops
    when its time is over. The rest comes in a later slice. It is never begun if the application stops or its partitions
    are revoked: with exactly-once, beginning takes the transactional id, which may already belong to another instance.

    Args:
        tasks: the tasks.
        slots: number of slots.
        run: restores the shares for the duration of a slice.
        go_on: returns whether to continue; called between slices.
        show: receives the progress of some stores.

    Returns:
        The sum of the reports: complete, or with the failure or interruption that ended the restore. Tasks with locked
        stores are left out.
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
