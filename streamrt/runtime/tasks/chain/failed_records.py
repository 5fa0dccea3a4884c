"""Handles records that fail: `on_error` says whether it skips them or writes them as dead letters."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from streamrt.common.texts import one_line
from streamrt.errors import SinkError, TransactionError
from streamrt.kafka.writing.record_writer import WriterFailedError
from streamrt.records import RawRecord, TopicPartition
from streamrt.runtime.report import FailedRecord
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.task_clients import RecordWriter
from streamrt.secret import masked
from streamrt.topics import DeadLetter, ErrorStage
from streamrt.topology import Node, TaskId

__all__ = ["DeadLetterRefused", "FailedRecords", "RejectedRecords"]

logger = logging.getLogger("streamrt")

_SILENCE_S = 10.0
_MOST_NOTED = 100
"""In one report."""


class DeadLetterRefused(Exception):  # noqa: N818 - control flow inside the runtime; never seen by users
    """A dead letter could not be produced."""


class FailedRecords:
    """Skips the records that fail, or writes them to a topic.

    Args:
        spec: the application.
        clock: returns seconds; only differences count.

    Attributes:
        skipped: number of records skipped since the last `take`.
        dead_letters: number of dead letters written since the last `take`.
    """

    def __init__(self, spec: TaskSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._policies = spec.policies
        self._group = spec.group
        self._clock = clock
        # When a kind of error was last noted, and how many have come since.
        self._told: dict[tuple[str, int | None, str], tuple[float, int]] = {}
        self._noted: list[FailedRecord] = []
        self.skipped = 0
        self.dead_letters = 0

    def take(self) -> tuple[int, int]:
        """Return the numbers of skipped records and of dead letters, and begin again at zero."""
        taken = self.skipped, self.dead_letters
        self.skipped = self.dead_letters = 0
        return taken

    def take_noted(self, stream: str) -> list[FailedRecord]:
        """Return the records of a stream that were noted since the last call."""
        noted, self._noted = self._noted, []
        return [replace(each, task=TaskId(stream, each.task.partition)) for each in noted]

    def skips(self, stage: ErrorStage) -> bool:
        """Return whether what fails at a stage is skipped."""
        return stage in self._policies.skipped

    def keeps(self, stage: ErrorStage) -> bool:
        """Return whether what fails at a stage becomes a dead letter."""
        return stage in self._policies.topics

    def skip(self, stage: ErrorStage, error: BaseException, record: Callable[[], RawRecord], node: Node | None) -> None:
        """Skip a record, or an output of it.

        Args:
            stage: where it failed.
            error: the error.
            record: returns the record, as Kafka has it; called only for a record that is noted.
            node: the operator that failed; None if it was none.
        """
        self.skipped += 1
        self._log_failure(stage, error, record, node, "skipping it")

    def skip_quietly(
        self, stage: ErrorStage, error: BaseException, record: Callable[[], RawRecord], node: Node | None
    ) -> None:
        """Skip a record because a callback said so; the callback logs what it wants. The arguments are those of `skip`."""
        self.skipped += 1
        self._note_failure("skipped record", stage, error, record, node)

    def keep(
        self, stage: ErrorStage, error: BaseException, record: RawRecord, node: Node | None, writer: RecordWriter
    ) -> None:
        """Write a record to the topic for dead letters.

        Args:
            stage: where it failed.
            error: the error.
            record: the record, as Kafka has it.
            node: the operator that failed; None if it was none.
            writer: the writer of the task: the dead letter is committed with the record's offset.

        Raises:
            DeadLetterRefused: if the dead letter cannot be written.
        """
        kind, operator = type(error), _name_of(node)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        where = record.topic(), record.partition(), record.offset()
        letter = DeadLetter(stage, f"{module}{kind.__qualname__}", masked(str(error)), operator, *where, self._group)
        topic = self._policies.topics[stage]
        try:
            sent_at = record.timestamp()[1]
            timestamp = None if sent_at < 0 else sent_at
            writer.produce(topic, record.value(), record.key(), timestamp, letter.headers(record.headers()))
        except (TransactionError, WriterFailedError):
            raise
        except Exception as refusal:
            raise DeadLetterRefused(
                f"it cannot be written to {topic}, the topic for dead letters: {refusal}"
            ) from refusal
        self.dead_letters += 1
        self._log_failure(stage, error, lambda: record, node, f"writing it to {topic}")

    def _log_failure(
        self, stage: str, error: BaseException, record: Callable[[], RawRecord], node: Node | None, consequence: str
    ) -> None:
        """Log the first error of each kind, and then one in a while."""
        kind = "skipped record" if stage in self._policies.skipped else "dead letter"
        since = self._note_failure(kind, stage, error, record, node)
        if since is None:
            return
        failed, operator = record(), _name_of(node)
        logger.warning(
            "%s[%d] at offset %d failed (%s%s: %s); %s%s",
            failed.topic(),
            failed.partition(),
            failed.offset(),
            f"{operator}: " if operator else "",
            type(error).__name__,
            masked(str(error)),
            consequence,
            f"; {since} more since the last message like this" if since else "",
        )

    def _note_failure(
        self, what: str, stage: str, error: BaseException, record: Callable[[], RawRecord], node: Node | None
    ) -> int | None:
        """Note the first error of each kind for the report, and then one in a while: there may be thousands in a second.

        Returns:
            How many have come since the last one that was noted; None if this one is not.
        """
        kind, now = (stage, None if node is None else node.id, type(error).__name__), self._clock()
        told, since = self._told.get(kind, (-_SILENCE_S, 0))
        if now - told < _SILENCE_S:
            self._told[kind] = told, since + 1
            return None
        self._told[kind] = now, 0
        if len(self._noted) < _MOST_NOTED:
            failed, sink = record(), error.sink if isinstance(error, SinkError) else ""
            task, operator = TaskId("", failed.partition()), _name_of(node) or sink
            message = one_line(masked(f"{type(error).__name__}: {error}"))
            self._noted.append(
                FailedRecord(task, what, stage, failed.topic(), failed.offset(), operator, message, since)
            )
        return since


def _name_of(node: Node | None) -> str:
    return "" if node is None else str(node)


@dataclass
class RejectedRecords:
    """The records whose values sinks of this process reject. Their tasks process them again, without the operators.

    Attributes:
        offsets: the errors, by input partition and offset.
    """

    offsets: dict[TopicPartition, dict[int, SinkError]] = field(default_factory=dict)

    def add(self, error: SinkError) -> bool:
        """Add the record that an error names; return whether it is a new one."""
        if error.record is None:
            return False
        topic, partition, offset = error.record
        known = self.offsets.setdefault(TopicPartition(topic, partition), {})
        if offset < 0 or offset in known:
            return False
        known[offset] = error
        return True

    def forget(self, partition: TopicPartition, end: int) -> None:
        """Forget the records below a committed offset."""
        known = self.offsets.get(partition)
        if known is not None:
            self.offsets[partition] = {offset: error for offset, error in known.items() if offset >= end}
