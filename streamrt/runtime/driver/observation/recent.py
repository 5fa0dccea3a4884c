"""Events of the last minutes, for people who look at a running application."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from streamrt.common.texts import one_line
from streamrt.records import TopicPartition
from streamrt.runtime.report import FailedRecord, Failure, Report
from streamrt.secret import masked
from streamrt.topology import TaskId

__all__ = ["ErrorOwner", "Recent", "RecentError", "Second", "Trouble"]

_SECONDS = 120
_TROUBLES = 50
_ERRORS = 20
_MOST_OWNERS = 1_000

ErrorOwner = tuple[Literal["source", "sink", "topic"], str]
"""The owner of an error: the kind of part, and its name."""


@dataclass(frozen=True)
class RecentError:
    """An error of a source, a sink, or of records of a topic.

    Attributes:
        at: when this instance learned of it, in seconds since the Unix epoch.
        message: what happened, in one line and without secrets. If many records fail in the same way, one in ten seconds is
            listed.
    """

    at: float
    message: str


@dataclass(frozen=True)
class Second:
    """The figures that were reported within one second.

    Attributes:
        at: the second, since the Unix epoch.
        batches: micro-batches that ended; in resident mode, commits.
        records: records read.
        failed: records that failed and were skipped or became dead letters.
        longest_s: the longest duration of the tasks of these micro-batches; 0 if it is unknown, as in resident mode.
    """

    at: int
    batches: int = 0
    records: int = 0
    failed: int = 0
    longest_s: float = 0.0


@dataclass(frozen=True)
class Trouble:
    """A task that could not go on at once, or a record that failed.

    Attributes:
        at: when it was reported, in seconds since the Unix epoch.
        task: the task.
        kind: "interrupted", "locked", "sink paused", "record rejected", "skipped record", "dead letter" or "failed".
        reason: why, in one line and without secrets.
        record: topic, partition and offset of the record; empty if it was none.
        operator: the operator or sink that failed; empty if it is unknown.
    """

    at: float
    task: TaskId
    kind: str
    reason: str
    record: str = ""
    operator: str = ""


class Recent:
    """Remembers the reports of two minutes, and the last fifty troubles; safe to use from any thread.

    Args:
        clock: returns the seconds since the Unix epoch.

    Example:
        >>> recent = Recent(clock=lambda: 1_000.5)
        >>> recent.report(Report(records=5, seconds=0.2), finished=True)
        >>> recent.seconds()
        (Second(at=1000, batches=1, records=5, failed=0, longest_s=0.2),)
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._seconds: deque[Second] = deque(maxlen=_SECONDS)
        self._troubles: deque[Trouble] = deque(maxlen=_TROUBLES)
        self._errors: dict[ErrorOwner, deque[RecentError]] = {}
        self._lock = threading.Lock()

    def report(self, report: Report, *, finished: bool) -> None:
        """Add a report.

        Args:
            report: the report.
            finished: whether it finishes a batch.
        """
        now = self._clock()
        with self._lock:
            if self._seconds and self._seconds[-1].at - now > _SECONDS:
                # The clock was set back, and what is remembered lies in the future.
                self._seconds.clear()
            # After a small correction of the clock, the last second goes on.
            at = max(int(now), self._seconds[-1].at if self._seconds else 0)
            last = self._seconds.pop() if self._seconds and self._seconds[-1].at == at else Second(at)
            self._seconds.append(
                Second(
                    at,
                    last.batches + finished,
                    last.records + report.records,
                    last.failed + report.skipped + report.dead_letters,
                    max(last.longest_s, report.seconds if finished else 0.0),
                )
            )
            for task, reason in report.interrupted.items():
                self._troubles.append(Trouble(now, task, "interrupted", _clear_text(reason)))
            for task, reason in report.locked.items():
                self._troubles.append(Trouble(now, task, "locked", _clear_text(reason)))
            for task, pause in report.stalled.items():
                kind = "record rejected" if pause.rejected else "sink paused"
                reason = _clear_text(pause.reason) if pause.reason else f"a sink asked for {pause.seconds:g} s"
                self._troubles.append(Trouble(now, task, kind, reason, operator=pause.sink))
                self._note_message(("sink", pause.sink or f"of {task.stream}"), now, reason)
            for failed in report.failed:
                self._note_failed(failed, now)
            if report.failure is not None:
                self._note_failure(report.failure, now)

    def note_error(self, owner: ErrorOwner, message: str) -> None:
        """Add an error that no report has, such as one of a source."""
        with self._lock:
            self._note_message(owner, self._clock(), _clear_text(message))

    def errors(self) -> dict[ErrorOwner, tuple[RecentError, ...]]:
        """Return the last twenty errors of each source, sink and topic that had any, the oldest first."""
        with self._lock:
            return {owner: tuple(errors) for owner, errors in sorted(self._errors.items())}

    def _note_failed(self, failed: FailedRecord, now: float) -> None:
        reason = _clear_text(failed.message) + (
            f"; {failed.more} more since the last one like this" if failed.more else ""
        )
        record = f"{failed.topic}[{failed.task.partition}] at {failed.offset}"
        self._troubles.append(Trouble(now, failed.task, failed.kind, reason, record, failed.operator))
        at_sink = failed.stage == "sink" and failed.operator
        where = f"{record} ({failed.operator})" if failed.operator and not at_sink else record
        owner: ErrorOwner = ("sink", failed.operator) if at_sink else ("topic", failed.topic)
        self._note_message(owner, now, one_line(f"{failed.kind}: {where}: {reason}"))

    def _note_failure(self, failure: Failure, now: float) -> None:
        """Note the error that ends the application."""
        reason, where = _clear_text(failure.message), failure.partition
        if isinstance(where, TopicPartition):
            task, record = TaskId(where.topic, where.partition), f"{where} at {failure.offset}"
        else:
            task, record = where, ""
        self._troubles.append(Trouble(now, task, "failed", reason, record, failure.sink))
        if failure.kind == "sink":
            self._note_message(("sink", failure.sink or f"of {task.stream}"), now, reason)
        elif isinstance(where, TopicPartition):
            self._note_message(("topic", where.topic), now, reason)

    def _note_message(self, owner: ErrorOwner, now: float, message: str) -> None:
        known = self._errors.get(owner)
        if known is None:
            if len(self._errors) >= _MOST_OWNERS:
                return
            known = self._errors[owner] = deque(maxlen=_ERRORS)
        known.append(RecentError(now, message))

    def seconds(self) -> tuple[Second, ...]:
        """Return the seconds of the last two minutes in which something was reported, the oldest first."""
        with self._lock:
            since = self._clock() - _SECONDS
            return tuple(second for second in self._seconds if second.at > since)

    def troubles(self) -> tuple[Trouble, ...]:
        """Return the last troubles, the oldest first."""
        with self._lock:
            return tuple(self._troubles)


def _clear_text(text: object) -> str:
    """Return a text in one line and without secrets."""
    return one_line(masked(str(text)))
