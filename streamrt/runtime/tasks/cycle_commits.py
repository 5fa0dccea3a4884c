"""The commits of a work cycle: which tasks commit together and in which order, and which work is aborted."""

import time
from collections.abc import Callable
from concurrent.futures import wait

from streamrt.errors import ProducerError, SinkError
from streamrt.kafka.writing.record_writer import WriterFailedError
from streamrt.records import OffsetRange
from streamrt.runtime.report import Failure, Pause, Report
from streamrt.runtime.tasks.error_handling import (
    HANDLED_ERRORS,
    RETRIABLE_ERRORS,
    note_close_error,
    note_failure,
    record_task_error,
    sink_failure,
)
from streamrt.runtime.tasks.stores.task_stores import ask_ends
from streamrt.runtime.tasks.stream_task import StreamTask, TaskStatus
from streamrt.runtime.tasks.task_registry import TaskRegistry
from streamrt.runtime.tasks.work import flush_writers, note_step, work_of
from streamrt.secret import masked

__all__ = ["CycleCommits"]

_SMALLER = "keep less in one state key, or raise message.max.bytes of the producer and max.message.bytes of the topic"


class CycleCommits:
    """The commits of one work cycle, and the work in it that ends without a commit.

    With at-least-once, tasks share a writer and commit after one flush of it, which makes all their outputs durable.
    With exactly-once, each task commits by itself; resident tasks commit in parallel.

    It knows nothing of the active task: the cycle assigns the outputs of the operators to their task before the task
    commits or is aborted.

    Args:
        registry: the tasks of this process.
        report: the report of the cycle. Work is added when it is committed, and removed when it is aborted.
        resident: whether tasks stay open after a commit. Otherwise each task is closed.
        number: number of the cycle, for log lines.

    Attributes:
        working: the tasks that have worked in this cycle and are neither prepared nor ended.
        aborted: the tasks that must be opened again before they can work; their uncommitted records repeat.
    """

    def __init__(self, registry: TaskRegistry, report: Report, *, resident: bool, number: int) -> None:
        self.working: list[StreamTask] = []
        self.aborted: set[StreamTask] = set()
        self._registry = registry
        self._report = report
        self._resident = resident
        self._number = number
        self._prepared: list[StreamTask] = []
        self._seconds = 0.0
        self._committed = False

    def begin(self, task: StreamTask) -> None:
        """Begin the work of a task, which ends with `finish` or `abort`."""
        self.working.append(task)
        task.begin_work()
        if self._registry.spans is not None:
            work_of(task).span = self._registry.spans.commit(task.id)

    def finish(self, task: StreamTask, begun: float) -> bool:
        """Prepare or commit the work of a task; return whether another task may follow.

        Args:
            task: the task, whose outputs are complete.
            begun: value of `time.monotonic()` at which its commit began.
        """
        try:
            return self._end_transaction(task)
        except BaseException:
            self.release(task)
            raise
        finally:
            self._forget_task(task)
            self._seconds += time.monotonic() - begun

    def commit_all(self) -> None:
        """Commit all prepared work, and note in the report how long the commits of the cycle took."""
        self.settle_prepared()
        if self._committed:
            self._report.commit_seconds = self._seconds

    def settle_prepared(self) -> None:
        """Commit all prepared work."""
        prepared, self._prepared = self._prepared, []
        begun = time.monotonic()
        try:
            if self._registry.spec.transactional:
                for task, publish in zip(prepared, self._make_publishers(prepared), strict=True):
                    with self._registry.at_work(task.id, self._number):
                        self._commit_task(task, publish)
                return
            changed = prepared
            try:
                refusal = flush_writers(prepared, self._registry.spec)
                if refusal is None:
                    # Only now: with a change that outlives its output, the output never comes.
                    changed = [task for task in prepared if self._produce_changes(task)]
                    if any(task.stores.logged for task in changed):
                        refusal = flush_writers(changed, self._registry.spec)
                    ask_ends(self._registry.clients, [task.stores for task in changed])
            except WriterFailedError as failed:
                for task in changed:
                    self.handle_retriable_error(task, failed)
                return
            for task in changed:
                if refusal is None:
                    with self._registry.at_work(task.id, self._number):
                        self._commit_task(task, task.publish)
                    continue
                kind, message, cause = refusal
                tasks = ", ".join(str(other.id) for other in prepared)
                self.withdraw(task, Failure(kind, task.id, None, f"{message} (while processing {tasks})", cause))
                self.release(task)
        finally:
            for task in prepared:
                if task.status in (TaskStatus.PREPARED, TaskStatus.PUBLISHED):
                    self.release(task)
            self._seconds += time.monotonic() - begun

    def _make_publishers(self, prepared: list[StreamTask]) -> list[Callable[[], None]]:
        """Return one function per task that commits its transaction, or waits for its started commit."""
        pool = self._registry.pool
        if pool is None or len(prepared) == 1:
            return [task.publish for task in prepared]

        def publish(task: StreamTask) -> None:
            with self._registry.at_work(task.id, self._number):
                task.publish()

        # Each commit waits some milliseconds for the brokers, so they run in parallel.
        futures = [pool.submit(publish, task) for task in prepared]
        wait(futures)
        return [future.result for future in futures]

    def _end_transaction(self, task: StreamTask) -> bool:
        end = {partition: self._report.ranges[partition].end for partition in task.inputs}
        try:
            task.times = task.stores.times()
        except HANDLED_ERRORS as trouble:
            self.handle_retriable_error(task, trouble)
            return False
        idle = all(end[partition] <= at for partition, at in task.start.items()) and not task.stores.dirty
        if idle and not work_of(task).produced and not work_of(task).dead_letters:
            if self._registry.spec.transactional:
                # Nothing to commit, but this process now holds the transactional id.
                self._registry.note_committer(task, self._report)
            self._note_times(task)
            self._gather_outputs(task)
            if not self._resident:
                self.release(task)
            return True
        sinks = self._registry.sinks
        try:
            # The next attempt may divide unfinished work elsewhere: then none of it may be dropped.
            task.prepare(end, lambda: sinks.flush(task.start if task.unfinished else end))
        except HANDLED_ERRORS as trouble:
            self.handle_retriable_error(task, trouble)
            return False
        except SinkError as error:
            if self._reject_record(task, error):
                return False
            self.give_up(task, sink_failure(task.id, error))
            return False
        if self._registry.spec.transactional and not self._produce_changes(task):
            return False
        note_step(task, "prepared")
        work_of(task).sunk = sinks.drain(task.inputs)
        if self._registry.spec.transactional and not self._resident:
            return self._commit_task(task, task.publish)
        self._prepared.append(task)
        return True

    def _produce_changes(self, task: StreamTask) -> bool:
        """Hand the changes of a task's stores to the writer; return False if its work has ended instead."""
        try:
            task.produce_changes()
        except HANDLED_ERRORS as trouble:
            self.handle_retriable_error(task, trouble)
            return False
        except ProducerError as refusal:
            # The callback cannot skip this record: state whose changelog lacks a change would be wrong after a restore.
            failure = Failure(
                "producer", task.id, None, f"a state change could not be produced: {refusal}; {_SMALLER}", refusal
            )
            self.give_up(task, failure)
            return False
        return True

    def _reject_record(self, task: StreamTask, error: SinkError) -> bool:
        """Redeliver a record whose value a sink rejects, to be skipped or kept; return whether that can be done."""
        policies = self._registry.spec.policies
        tolerated = "sink" in policies.topics or "sink" in policies.skipped
        if not tolerated or not self._registry.rejected.add(error):
            return False
        self.abort(task)
        self._report.stalled[task.id] = Pause(0.0, masked(str(error)), rejected=True, sink=error.sink)
        return True

    def _commit_task(self, task: StreamTask, publish: Callable[[], None]) -> bool:
        try:
            publish()
            note_step(task, "published")
            task.store()
            note_step(task, "stored")
        except HANDLED_ERRORS as trouble:
            self.handle_retriable_error(task, trouble, repair=False)
            return False
        self._committed = True
        self._registry.note_committer(task, self._report)
        self._note_times(task)
        self._gather_outputs(task)
        if not self._resident:
            self.release(task)
        elif not task.proceed():
            self.discard(task)
        return True

    def _note_times(self, task: StreamTask) -> None:
        self._report.times.update({(task.id, store): time for store, time in task.times.items()})
        self._report.unfinished[task.id] = task.unfinished
        self._registry.note_stores(task, self._report)
        if work_of(task).ended:
            self._report.ended[task.id] = work_of(task).ended
        # Unfinished work may send earlier event times. In a micro-batch, the driver waits until it is finished.
        complete = not task.unfinished or not self._resident
        task.note_durable(sent=complete)
        if complete:
            self._report.sent.update({(task.id, topic): time for topic, time in task.sent.items()})

    def _gather_outputs(self, task: StreamTask) -> None:
        """Add the outputs of a task, which are now committed, to the report."""
        work = work_of(task)
        if work.span is not None:
            work.span.committed(work.counts(), ((each, self._report.ranges[each].end) for each in task.inputs))
        self._report.produced += work.produced
        self._report.produced_bytes += work.produced_bytes
        self._report.skipped += work.skipped
        self._report.dead_letters += work.dead_letters
        for partition in task.inputs:
            self._registry.rejected.forget(partition, self._report.ranges[partition].end)
        self._report.collected += work.collected
        self._report.sunk += work.sunk
        task.work = None

    # -- Work that ends without a commit -------------------------------------------------------------------------------

    def handle_retriable_error(self, task: StreamTask, trouble: Exception, *, repair: bool = True) -> None:
        """Abort the work of a task because of one of `HANDLED_ERRORS`."""
        cause = trouble.__cause__
        if isinstance(trouble, RETRIABLE_ERRORS) and isinstance(cause, ProducerError) and cause.refused:
            # A retry would also fail. The callback cannot skip the record: the transaction is lost with it.
            message = f"{cause} (while processing {task.id})"
            self.give_up(task, Failure("producer", task.id, None, message, cause))
            return
        self.abort(task)
        record_task_error(self._report, task, trouble, repair=repair)

    def give_up(self, task: StreamTask, failure: Failure) -> None:
        """Abort the work of a task because the application must end."""
        self.abort(task)
        note_failure(self._report, failure)

    def abort(self, task: StreamTask) -> None:
        """Drop the uncommitted work of a task, and close its stores."""
        self._forget_task(task)
        self.release(task)
        self.withdraw(task, None)

    def discard(self, task: StreamTask) -> None:
        """Close the stores of a task without uncommitted work; it must be opened again before it can work."""
        self.release(task)
        self.aborted.add(task)

    def release(self, task: StreamTask) -> None:
        """Close the stores of a task. Uncommitted work is dropped."""
        note_close_error(
            self._report, task, self._registry.abort(task) if self._resident else self._registry.remove(task)
        )

    def release_all(self) -> tuple[StreamTask, ...]:
        """Release all tasks whose work is not committed, and return them; `withdraw` takes their work out of the report."""
        tasks = (*self._prepared, *self.working)
        for task in tasks:
            self.release(task)
        self._prepared.clear()
        self.working.clear()
        return tasks

    def drain_aborted(self) -> set[StreamTask]:
        """Return the tasks that must be opened again since the last call; their uncommitted records repeat."""
        aborted, self.aborted = self.aborted, set()
        return aborted

    def withdraw(self, task: StreamTask, failure: Failure | None) -> None:
        """Remove the uncommitted work of a task from the report."""
        self.aborted.add(task)
        self._registry.sinks.pause(task.inputs)
        report, work = self._report, work_of(task)
        if work.span is not None:
            work.span.aborted(work.counts(), "aborted" if failure is None else f"failed: {failure.kind}")
        report.records -= work.records
        report.read_bytes -= work.read_bytes
        report.outputs -= work.outputs
        task.work = None
        for partition, start in task.start.items():
            done = report.ranges[partition]
            report.ranges[partition] = OffsetRange(*partition, done.start, max(done.start, start))
            # Earlier work of the cycle may be committed.
            kept = [offset for offset in report.processed.pop(partition, ()) if offset < start]
            if kept:
                report.processed[partition] = kept
        report.complete = False
        report.failure = report.failure or failure

    def _forget_task(self, task: StreamTask) -> None:
        if task in self.working:
            self.working.remove(task)
