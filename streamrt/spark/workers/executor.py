"""The code that runs inside Spark's Python workers: one call for each Spark task.

Spark reuses a worker for any task of any partition, and ends workers that are idle for a while. Workers keep only a
cache between calls: producers, and the closures of the operators. Nothing relies on it.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark import SparkFiles, TaskContext

from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.report import Report
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.slots.reports import dump_report
from streamrt.slots.resident_task import RunResident
from streamrt.slots.worker_process import Lines, SpecReference, WorkerProcess
from streamrt.topology import TaskId


class TickTasks:
    """Ticks partitions without records, for `run_on_numbers`: numbers of partitions in, one report out."""

    def __init__(self, reference: SpecReference, tasks: Sequence[TaskId], context: BatchContext) -> None:
        self._reference = reference
        self._tasks = tasks
        self._context = context

    def __call__(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Tick the tasks of the given numbers."""
        own = [self._tasks[number] for number in numbers]
        yield from work_of_worker(self._reference, self._context, lambda executor, context: executor.tick(own, context))


class RestoreStores:
    """Restores stores, for `run_on_numbers`: numbers of shares of the tasks in, reports about their restore out."""

    def __init__(self, reference: SpecReference, shares: Sequence[Sequence[TaskId]], context: BatchContext) -> None:
        self._reference = reference
        self._shares = shares
        self._context = context

    def __call__(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Restore the stores of the tasks in the given shares."""
        tasks = WorkerProcess.current(self._reference).tasks
        own = [task for number in numbers for task in self._shares[number]]
        if own:
            yield dump_report(tasks.restore(own, of_attempt(self._context)))


class RunResidentTasks:
    """Runs resident tasks, for `run_on_numbers`: numbers of slots in, nothing out, until the driver stops them.

    Args:
        work: runs the task of a slot.
    """

    def __init__(self, work: RunResident) -> None:
        self._work = work

    def __call__(self, slots: Iterable[int]) -> Iterator[bytes]:
        """Run the given slots: one for each Spark task."""
        context = TaskContext.get()
        for slot in slots:
            self._work(slot, 0 if context is None else context.attemptNumber())
        yield from ()


def files_directory() -> Path:
    """Return the directory that the workers of an executor share."""
    return Path(SparkFiles.getRootDirectory())


def of_attempt(context: BatchContext) -> BatchContext:
    """Return the context of this attempt at a Spark task."""
    attempt = TaskContext.get()
    if attempt is None:
        return context
    # Numbers count all attempts of all tasks in this Spark context; later attempts have higher numbers.
    context = replace(context, attempt=attempt.taskAttemptId())
    # The previous attempt may have taken the transactional ids, so the producers of this worker are fenced.
    return replace(context, last_committer={}) if attempt.attemptNumber() > 0 else context


def work_of_worker(
    reference: SpecReference, context: BatchContext, work: Callable[[TaskExecutor, BatchContext], Report]
) -> Iterator[bytes]:
    """Let the tasks of this worker do some work, and yield their report, if any."""
    process = WorkerProcess.current(reference)
    context = of_attempt(context)
    # The prints of users' functions belong on the standard output of the process that called run().
    with contextlib.redirect_stdout(Lines(process.tasks.show_line)):
        report = work(process.tasks, context)
    if process.clients.failed:
        process.forget()
    told = report.ranges or report.shown or report.failure or report.interrupted or report.locked or report.unfinished
    if told:
        yield dump_report(report)
