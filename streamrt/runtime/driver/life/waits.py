"""Deadlines of waits for an application, and requests for early commits."""

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from streamrt.records import TopicPartition
from streamrt.runtime.driver.life.lifecycle import RunControl

__all__ = ["CommitRequests", "Deadline", "ended_by", "why_late"]

_FIRST_COMMIT_S = 0.1
_LISTED = 3
_ended_by: ContextVar[threading.Event | None] = ContextVar("streamrt_wait_ended_by", default=None)


@contextmanager
def ended_by(event: threading.Event) -> Iterator[None]:
    """Let the deadlines that are made inside the `with` block also be over once an event is set.

    Example:
        >>> gone = threading.Event()
        >>> with ended_by(gone):
        ...     deadline = Deadline(None)
        >>> gone.set()
        >>> deadline.over, deadline.left
        (True, 0.0)
    """
    token = _ended_by.set(event)
    try:
        yield
    finally:
        _ended_by.reset(token)


def why_late(
    missing: Mapping[TopicPartition, tuple[int | None, int]], paused: Collection[str], *, all_paused: bool
) -> list[str]:
    """Return why a wait is not over, in parts of a sentence.

    Args:
        missing: the committed and the wanted offset of the partitions that are behind.
        paused: the topics that are not read.
        all_paused: whether callers have paused the whole application.
    """
    listed = [f"{each} is committed up to {at or 0} of {wanted}" for each, (at, wanted) in sorted(missing.items())]
    parts = listed[:_LISTED]
    if len(listed) > _LISTED:
        parts.append(f"{len(listed) - _LISTED} more partitions")
    if all_paused:
        parts.append("it is paused: resume() it")
    elif paused:
        parts.append(f"{', '.join(sorted(paused))} paused: resume() them")
    return parts


class CommitRequests:
    """Has this instance commit what it has processed, sooner than at the next interval, while somebody waits for it.

    The pause between two requests doubles up to the interval, so that a long wait costs little.

    Args:
        control: carries the request to the run.
        interval: the commit interval of the application, in seconds.
    """

    def __init__(self, control: RunControl, interval: float) -> None:
        self._control = control
        self._interval = interval
        self._missing: frozenset[TopicPartition] = frozenset()
        self._pause = _FIRST_COMMIT_S
        self._next = time.monotonic() + self._pause

    def offer(self, missing: Collection[TopicPartition], own: Collection[TopicPartition]) -> None:
        """Request a commit if it is time for one.

        Args:
            missing: partitions whose commit is awaited.
            own: partitions of this instance.
        """
        now = time.monotonic()
        if self._missing != frozenset(missing):
            self._missing, self._pause = frozenset(missing), _FIRST_COMMIT_S
            self._next = now + self._pause
        if now >= self._next and not self._missing.isdisjoint(own) and not self._control.pending:
            self._control.commit()
            self._pause = min(2 * self._pause, self._interval)
            self._next = now + self._pause


class Deadline:
    """The end of a wait.

    Args:
        timeout: seconds; None for no limit.
    """

    def __init__(self, timeout: float | None) -> None:
        self.timeout = float("inf") if timeout is None else timeout
        self._at = time.monotonic() + self.timeout
        self._ended_by = _ended_by.get()
        self.trouble = ""

    @property
    def left(self) -> float:
        """Seconds until the end."""
        if self._ended_by is not None and self._ended_by.is_set():
            return 0.0
        return max(0.0, self._at - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the end has come."""
        return self.left <= 0
