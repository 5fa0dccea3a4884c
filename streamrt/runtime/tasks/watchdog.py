"""The watchdog for user functions that do not return: `processing_timeout`.

A separate thread detects that a record takes too long, and sends a signal to the thread that processes it. The signal
handler raises `ProcessingTimeoutError` in the user's function. This interrupts loops, sleeps, reads and locks in
Python. If the function continues, because it hangs in native code or catches every error, it gets the same time again.
Then the process ends and leaves a note, so that the next process fails the record without a call of the function.
"""

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from streamrt.errors import ProcessingTimeoutError
from streamrt.topology import Node

logger = logging.getLogger("streamrt")

_AGAIN_S = 0.05
"""Delay of the next attempt if StreamRT's own code is running below the function, such as an access to state."""

_CALLERS = (
    "streamrt.operators",
    "streamrt.windows",
    "streamrt.joins",
    "streamrt.dataframe",
    "streamrt.serializers",
    "streamrt.runtime.tasks.chain.task_inputs",
    "streamrt.runtime.tasks.chain.operator_chain",
)
_NO_CALLERS = ("streamrt.joins.lookups", "streamrt.serializers.registry")
"""Modules that also call libraries, which have their own time-outs and must not be interrupted at arbitrary points."""

RecordId = tuple[str, int, int]
"""Topic, partition and offset of a record; a negative offset stands for a tick, which has no record."""


class Watched(Protocol):
    """A task that processes records."""

    def moment(self) -> tuple[object, RecordId] | None:
        """Return a unique id of the current record or tick, and its id; None between records."""


class Notes:
    """The records at which a process of this application was ended, as a directory with one file per record.

    Args:
        directory: the directory; created when it is needed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen = 0
        self._found: dict[RecordId, str] = {}

    def add(self, record: RecordId, problem: str) -> None:
        """Note a record and its problem."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        topic, partition, offset = record
        file = self._directory / f"{topic}-{partition}-{offset}.json"
        new = file.with_suffix(".new")
        new.write_text(json.dumps([*record, problem]))
        new.replace(file)

    def of(self, topic: str, partition: int) -> dict[int, str]:
        """Return the noted problems of a partition, by offset."""
        with contextlib.suppress(FileNotFoundError):
            changed = self._directory.stat().st_mtime_ns
            if changed != self._seen:
                self._seen = changed
                documents = [json.loads(file.read_text()) for file in self._directory.glob("*.json")]
                self._found = {(name, number, offset): problem for name, number, offset, problem in documents}
        return {record[2]: problem for record, problem in self._found.items() if record[:2] == (topic, partition)}


class Watchdog:
    """Limits the processing time of each record.

    It can interrupt only functions in the main thread of a process, which is where Spark's workers run them; in other
    threads it does nothing.

    Args:
        timeout_s: maximum processing time of a record, in seconds.
        notes: receives the record before the process ends; None if the process must not end.
        end: ends the process.
        clock: returns seconds; only differences count.
    """

    def __init__(
        self,
        timeout_s: float,
        notes: Notes | None = None,
        end: Callable[[], None] = lambda: os._exit(1),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout_s = timeout_s
        self._notes = notes
        self._end = end
        self._clock = clock
        self._running: Watched | None = None
        self._suspected: object = None
        self._interrupted: object = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._warned = False

    @contextlib.contextmanager
    def watching(self, task: Watched) -> Iterator[None]:
        """Watch the records that a task processes inside this context."""
        if threading.current_thread() is not threading.main_thread():
            if not self._warned:
                self._warned = True
                logger.warning("processing_timeout has no effect on records that are processed outside the main thread")
            yield
            return
        if self._thread is None:
            arguments = [threading.main_thread().ident]
            self._thread = threading.Thread(
                target=self._watch_thread, args=arguments, name="streamrt-watchdog", daemon=True
            )
            self._thread.start()
        # Set it each time: another application may have used this process. SIGURG is ignored by default, so a late
        # signal does no harm.
        signal.signal(signal.SIGURG, self._interrupt_record)
        self._running = task
        try:
            yield
        finally:
            self._running = None

    def noted(self, topic: str, partition: int) -> dict[int, ProcessingTimeoutError]:
        """Return, by offset, the errors for records of a partition at which an earlier process was ended."""
        found = {} if self._notes is None else self._notes.of(topic, partition)
        return {offset: ProcessingTimeoutError(problem) for offset, problem in found.items()}

    def close(self) -> None:
        """Stop the watchdog."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch_thread(self, thread: int) -> None:
        pause_s = min(self._timeout_s / 4, 1.0)
        seen: object = None
        since = self._clock()
        while not self._closed.wait(pause_s if self._suspected is None else _AGAIN_S):
            moment = self._current_moment()
            now = self._clock()
            if moment is None or moment[0] != seen:
                seen, since, self._suspected = None if moment is None else moment[0], now, None
            elif now - since >= 2 * self._timeout_s and self._notes is not None:
                self._give_up(thread, moment[1])
            elif now - since >= self._timeout_s and seen != self._interrupted:
                self._suspected = seen
                signal.pthread_kill(thread, signal.SIGURG)

    def _current_moment(self) -> tuple[object, RecordId] | None:
        running = self._running
        moment = None if running is None else running.moment()
        # Another task may have the same id.
        return None if moment is None else ((running, moment[0]), moment[1])

    def _interrupt_record(self, number: int, frame: FrameType | None) -> None:
        """Raise the error if the same record is still being processed and the user's function is running."""
        moment, suspected = self._current_moment(), self._suspected
        stack = CallStack.of(frame)
        if moment is None or suspected is None or moment[0] != suspected or not stack.user_code:
            return
        # Only once, so that a function that catches the error can clean up.
        self._suspected, self._interrupted = None, moment[0]
        raise ProcessingTimeoutError(f"took longer than {self._timeout_s:g} s (processing_timeout)")

    def _give_up(self, thread: int, record: RecordId) -> None:
        stack = CallStack.of(sys._current_frames().get(thread))
        topic, partition, offset = record
        # A tick has no record to skip: the next process would do the same work.
        if not stack.called_by_operator or self._notes is None or offset < 0:
            return
        problem = (
            f"{stack.operator} did not return within {self._timeout_s:g} s (processing_timeout)"
            f"{f', was at {stack.where}' if stack.where else ''}, and could not be interrupted"
        )
        logger.error("%s[%d] at offset %d: %s; ending the process that runs it", topic, partition, offset, problem)
        with contextlib.suppress(OSError):
            self._notes.add(record, f"{problem}, so that its process was ended")
        self._end()


@dataclass(frozen=True)
class CallStack:
    """The current position of a thread in user code.

    Attributes:
        user_code: whether the innermost function is outside StreamRT, and was called by StreamRT code that calls users'
            functions.
        called_by_operator: the same, or such StreamRT code is itself the innermost function: it may have called a
            native function.
        operator: the innermost operator.
        where: file, line and name of the function that StreamRT has called, if it is a Python function.
    """

    user_code: bool
    called_by_operator: bool
    operator: Node | str
    where: str

    @classmethod
    def of(cls, frame: FrameType | None) -> "CallStack":
        """Return the position from the innermost frame of a stack."""
        called: FrameType | None = None
        while frame is not None and not is_own(frame):
            called, frame = frame, frame.f_back
        caller = frame
        module = "" if caller is None else str(caller.f_globals.get("__name__", ""))
        # Composed operators are closures of generated code without a file.
        calls = caller is not None and (
            caller.f_code.co_filename.startswith("<streamrt")
            or (module.startswith(_CALLERS) and not module.startswith(_NO_CALLERS))
        )
        while frame is not None and not isinstance(frame.f_locals.get("_node"), Node):
            frame = frame.f_back
        where = ""
        if called is not None:
            code = called.f_code
            where = f"{Path(code.co_filename).name}:{called.f_lineno} in {code.co_name}"
        return cls(
            calls and called is not None, calls, "an operator" if frame is None else frame.f_locals["_node"], where
        )


def is_own(frame: FrameType) -> bool:
    """Return whether a frame belongs to this package."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith("streamrt.") or frame.f_code.co_filename.startswith("<streamrt")
