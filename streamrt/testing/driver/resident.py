"""Test doubles of a resident task's surroundings, in memory: its feed, its group member and its driver.

None of them waits: all data is available at once, and time passes on request.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.membership.group_state import GroupAssignment
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.link_messages import (
    Ack,
    AssignmentRequest,
    BatchDone,
    CutDone,
    CutRequest,
    Failed,
    FromTask,
    ProgressUpdate,
    StartPositions,
    ToTask,
)
from streamrt.runtime.report import Report
from streamrt.testing.memory import MemoryClients

__all__ = ["MemoryClock", "MemoryFeed", "MemoryLink", "MemoryMember"]


class MemoryClock:
    """Clock of a resident task in seconds, which a test moves.

    Example:
        >>> clock = MemoryClock()
        >>> clock.seconds += 5
        >>> clock()
        5.0
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        """Return the seconds that have passed."""
        return self.seconds


class MemoryFeed:
    """Implements `Feed`: holds records until they are polled."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._held: list[Chunk] = []

    @property
    def reading(self) -> bool:
        """Whether there are partitions to read, none of them paused."""
        return bool(self._next) and not self._paused

    def hold(self, chunk: Chunk) -> None:
        """Hold records, after those that are already held."""
        self._held.append(chunk)

    def forget(self) -> None:
        """Drop all records, polled or not."""
        self._held.clear()

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Also read these partitions, from these offsets on, after `resume`."""
        self._next.update(positions)
        self._paused.update(positions)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions."""
        for partition in partitions:
            self._next.pop(partition, None)
            self._paused.discard(partition)

    def poll(self, timeout_s: float, records: int) -> list[tuple[TopicPartition, InputBatch]]:
        """Return the held records, chunk by chunk."""
        found: list[tuple[TopicPartition, InputBatch]] = []
        for chunk in self._held:
            partition = TopicPartition(chunk.topic, chunk.partition)
            start = self._next.get(partition)
            if start is None or partition in self._paused or chunk.offsets[-1] < start:
                continue
            rest = chunk.from_offset(start)
            self._next[partition] = rest.offsets[-1] + 1
            columns = (rest.offsets, rest.keys, rest.values, rest.timestamps, rest.timestamp_types, rest.headers)
            found.append((partition, InputBatch(*columns)))
        return found

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset."""
        self._next[partition] = offset

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`."""
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        self._paused.difference_update(partitions)

    def ends(self) -> Mapping[TopicPartition, int]:
        """Return the ends of the partitions: each poll reads all."""
        return {partition: at for partition, at in self._next.items() if partition not in self._paused}

    def close(self) -> None:
        """Do nothing: there is no connection to close."""


class MemoryMember:
    """Implements `Member`: owns its partitions from the start, forever.

    Args:
        partitions: the partitions.
        clients: holds the committed offsets.
    """

    away = False

    def __init__(self, partitions: Iterable[TopicPartition], clients: MemoryClients) -> None:
        self._assignment = GroupAssignment(1, frozenset(partitions))
        self._clients = clients

    def start(self) -> None:
        """Do nothing: the member is already in its group."""

    def join_again(self) -> None:
        """Do nothing: there is no other member."""

    def current_assignment(self, timeout: float) -> GroupAssignment:
        """Return all partitions."""
        return self._assignment

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        generation: int | None = None,
        timeout: float = 30.0,
        metadata: OffsetMetadata = None,
    ) -> None:
        """Store offsets."""
        self._clients.commit_offsets(offsets, metadata)

    def close(self) -> None:
        """Do nothing: there is no other member."""


class MemoryLink:
    """Implements `Link`: the driver handles each report before `send` returns, and its answer is available at once.

    Args:
        positions: returns the start positions of tasks.
        take: handles reports; its errors are raised in the task.
    """

    def __init__(self, positions: Callable[[], Mapping[TopicPartition, int]], take: Callable[[Report], None]) -> None:
        self._positions = positions
        self._handle = take
        self._answers: list[ToTask] = []

    @property
    def answered(self) -> bool:
        """Whether there are messages that the task has not received yet."""
        return bool(self._answers)

    def say(self, message: ToTask) -> None:
        """Send the task a message that it did not request."""
        self._answers.append(message)

    def forget(self) -> None:
        """Remove the messages that the task has not received yet."""
        self._answers.clear()

    def send(self, message: FromTask) -> None:
        """Handle a message, and queue the answer."""
        if isinstance(message, AssignmentRequest):
            self._answers.append(StartPositions(message.generation, self._positions()))
        elif isinstance(message, CutRequest):
            # Nothing is on its way: each record is processed whole before the next one.
            self._answers.append(CutDone(message.number, message.stream, {}))
        elif isinstance(message, BatchDone):
            self._handle(message.report)
            self._answers.append(Ack(message.number))
        elif isinstance(message, ProgressUpdate):
            self._handle(message.report)
        elif isinstance(message, Failed):
            raise message.error

    def receive(self, timeout_s: float = 0.0) -> Sequence[ToTask]:
        """Return the messages for the task."""
        answers, self._answers = self._answers, []
        return answers
