"""Common parts of tests of tasks: a writer that fails on demand, and short ways to make chunks and to run them."""

from collections.abc import Iterable
from typing import Any

from streamrt import Application
from streamrt.app import definition_of
from streamrt.config import ProcessingMode
from streamrt.errors import ProducerError
from streamrt.models import Headers, TimestampType, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.report import Report
from streamrt.runtime.resident.turns import Turns
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.testing.memory import MemoryClients
from streamrt.topology import TaskId

PLACE = TopicPartition("in", 0)
TASK = TaskId("in", 0)


class Writer(MemoryClients):
    """Keeps what it gets; refuses values and loses deliveries as told."""

    def __init__(self, refuse: bytes | None = None) -> None:
        super().__init__(lambda: 0)
        self.records: list[tuple[str, bytes | None, bytes | None, int | None, Headers | None]] = []
        self.lost: list[Exception] = []
        self.flushes = 0
        self.refuse = refuse

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        if self.refuse is not None and value == self.refuse:
            raise ProducerError(f"topic {topic!r} does not take it")
        super().produce(topic, value, key, timestamp, headers, partition)
        self.records.append((topic, value, key, timestamp, headers))

    def flush(self) -> list[Exception]:
        self.flushes += 1
        lost, self.lost = self.lost, []
        return lost

    @property
    def values(self) -> list[bytes | None]:
        return [record[1] for record in self.records]


def chunk(*values: bytes | None, start: int = 0, partition: int = 0, topic: str = "in", **columns: Any) -> Chunk:
    """Return consecutive records without keys, headers and timestamps unless given."""
    count = len(values)
    return Chunk(
        topic,
        partition,
        columns.get("offsets", list(range(start, start + count))),
        columns.get("keys", [None] * count),
        list(values),
        columns.get("timestamps", [0] * count),
        [TimestampType.TIMESTAMP_CREATE_TIME] * count,
        columns.get("headers"),
    )


def numbers(count: int, start: int = 0, **columns: Any) -> Chunk:
    """Return records whose values are their offsets."""
    return chunk(*(str(start + index).encode() for index in range(count)), start=start, **columns)


class Process:
    """Has tasks process chunks, one batch after the other: micro-batches, or cycles over tasks that stay open.

    Args:
        tasks: the tasks.
        mode: the processing mode.
    """

    def __init__(self, tasks: TaskExecutor, mode: ProcessingMode) -> None:
        self._tasks = tasks
        self._resident = mode == "resident"

    def run(self, chunks: Iterable[Chunk], context: BatchContext) -> Report:
        """Process chunks, and commit the work."""
        if not self._resident:
            return self._tasks.run(chunks, context)
        batch = self._tasks.begin(context)
        try:
            turns = Turns(self._tasks.task_of)
            turns.add(chunks)
            turns.run(batch)
            if turns:
                batch.report.complete = False
            return self._tasks.end(batch)
        finally:
            batch.close()

    def tick(self, due: Iterable[TaskId], context: BatchContext) -> Report:
        """Let time pass for tasks, and commit the work."""
        if not self._resident:
            return self._tasks.tick(due, context)
        batch = self._tasks.begin(context)
        try:
            turns = Turns(self._tasks.task_of)
            for task in due:
                turns.want(task)
            turns.run(batch)
            return self._tasks.end(batch)
        finally:
            batch.close()

    def let_go(self) -> None:
        """Release the tasks that stay open, as when the partitions are given to others."""
        for task in list(self._tasks.assigned.values()):
            self._tasks.release(task)


def run(
    app: Application,
    *chunks: Chunk,
    writer: Writer | None = None,
    context: BatchContext | None = None,
    **wishes: bool,
) -> Report:
    """Process chunks with the tasks of an application, in one batch."""
    tasks = TaskExecutor(
        definition_of(app).task_spec(**{"count_outputs": True, "collect": True, **wishes}), writer or Writer()
    )
    return Process(tasks, app.config.processing_mode).run(chunks, context or BatchContext())


def values(report: Report) -> list[Any]:
    return [output.value for output in report.collected]


def end(report: Report, place: TopicPartition = PLACE) -> int:
    return report.ranges[place].end


def extract(value: Any, headers: Any, timestamp: int, kind: TimestampType) -> int:
    assert kind is TimestampType.TIMESTAMP_CREATE_TIME
    return int(value["at"]) + timestamp + len(headers or [])
