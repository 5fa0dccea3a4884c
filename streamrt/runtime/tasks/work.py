"""Notes of a work cycle about the work of its tasks."""

from collections.abc import Sequence

from streamrt.runtime.chunk import Chunk
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.commit import flush_writer
from streamrt.runtime.tasks.stream_task import StreamTask, Work

__all__ = ["flush_writers", "note_step", "size_of", "work_of"]


def work_of(task: StreamTask) -> Work:
    """Return the work of a task since its last commit."""
    if task.work is None:
        raise RuntimeError(f"task {task.id} has not worked since its last commit")
    return task.work


def flush_writers(prepared: Sequence[StreamTask], spec: TaskSpec) -> tuple[str, str, Exception] | None:
    """Make the outputs of tasks durable; return kind, message and cause of the failure if a record was lost."""
    # They share one writer, unless it was replaced after some of them had begun.
    writers = {id(task.writer): task.writer for task in prepared}.values()
    sources = () if spec.state is None else spec.state.sources.values()
    changelogs = {log.topic for source in sources for log in source.stores.values() if log is not None}
    changelogs |= set() if spec.positions is None else {spec.positions.topic}
    skip = "produce" in spec.policies.skipped
    refusals = [flush_writer(writer, spec.callbacks, changelogs, skip=skip) for writer in writers]
    return next((each for each in refusals if each is not None), None)


def size_of(chunk: Chunk, start: int, stop: int) -> int:
    """Return the size of the keys and values of some records of a chunk, in bytes."""
    return _column_bytes(chunk.keys[start:stop]) + _column_bytes(chunk.values[start:stop])


def _column_bytes(column: list[bytes | None]) -> int:
    try:
        # Twice as fast as with the filter, and almost every column has only values, or none.
        return sum(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        return sum(map(len, filter(None, column)))


def note_step(task: StreamTask, step: str) -> None:
    """Note in the span of a task, if it has one, that a step of its commit is done."""
    span = work_of(task).span
    if span is not None:
        span.note(step)
