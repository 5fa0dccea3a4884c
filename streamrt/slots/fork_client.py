"""The driver's end of the fork server: it starts the processes of a job, and those that follow killed ones."""

import contextlib
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from streamrt.common.child_process import shut_down, start_child
from streamrt.errors import RunnerError
from streamrt.slots.fork_server import EndedProcess, KillProcesses, StartJob, StartProcess, TakeOver

__all__ = ["KILLED", "ForkServer", "ProcessJob", "prepare_fork_server", "take_fork_server"]

logger = logging.getLogger("streamrt")

KILLED = (
    "a process that runs tasks ended unexpectedly: it was killed, for instance for want of memory, or a function "
    "ended it"
)
_SERVER_GONE = (
    "the process that starts those of tasks ended unexpectedly: it was killed, for instance for want of memory"
)
_ATTEMPTS = 4
"""Processes that a slot gets in one job, as many as from Spark."""
_END_S = 8.0
"""Longer than the fork server waits for its processes."""
_HASHES = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
"""All processes of tasks have the same hashes, as on Spark."""
_FIXED = ("LD_", "MALLOC_", "PYTHON")
"""Beginnings of the names of variables that count only when a process starts."""


class ProcessJob:
    """Runs the slots of a job; a slot whose process ends too early gets another one.

    Args:
        number: number of the job.
        count: number of slots.
        send: sends an order to the fork server, without waiting.
    """

    def __init__(self, number: int, count: int, send: Callable[[object], None]) -> None:
        self.error: Exception | None = None
        self.number = number
        self._send = send
        self._running = {*range(count)}
        self._lock = threading.Lock()
        self._done = threading.Event()

    def start(self, work: bytes) -> None:
        """Start the processes of all slots.

        Args:
            work: the pickled work of a slot.
        """
        self._send(StartJob(self.number, work))
        for slot in sorted(self._running):
            self._start(slot, 0)

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self._done.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is over; return whether it is."""
        return self._done.wait(timeout_s)

    def cancel(self) -> None:
        """Kill its processes."""
        with self._lock:
            self._fail("the job was cancelled")

    def see_end(self, ended: EndedProcess) -> None:
        """Handle that the process of a slot has ended."""
        why = "" if ended.finished else ended.error or KILLED
        slot, attempt = ended.process.slot, ended.process.attempt
        with self._lock:
            if why and self.error is None:
                if attempt + 1 < _ATTEMPTS:
                    logger.warning("starting the task of slot %d again: %s", slot, why)
                    self._start(slot, attempt + 1)
                    return
                self._fail(why)
            self._running.discard(slot)
            if not self._running:
                self._done.set()

    def lose_server(self) -> None:
        """Handle that the fork server has ended."""
        if not self.done:
            self.error = self.error or RuntimeError(_SERVER_GONE)
            self._done.set()

    def _start(self, slot: int, attempt: int) -> None:
        self._send(StartProcess(self.number, slot, attempt))

    def _fail(self, why: str) -> None:
        self.error = self.error or RuntimeError(why)
        self._send(KillProcesses(self.number))


class ForkServer:
    """The driver's end of a fork server, which has one job at a time. It begins to import modules when this object is made.

    Raises:
        RunnerError: if Python cannot be started.
    """

    def __init__(self) -> None:
        self._job: ProcessJob | None = None
        self._begun_with = _fixed_variables()
        # Neither the thread that receives nor a caller may wait for a pipe that is full.
        self._orders: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.alive = True
        try:
            self._process, self._pipe = start_child(
                "streamrt.slots.fork_server", "serve_driver", "streamrt fork server", _HASHES
            )
        except OSError as error:
            raise RunnerError(f"the processes of tasks cannot be started: {error}") from error
        for work in (self._receive_reports, self._send_orders):
            threading.Thread(target=work, name="streamrt-fork-server", daemon=True).start()

    def take_over(self) -> bool:
        """Give it the environment of this process; return whether it can have that, and is there."""
        if self.alive and self._begun_with == _fixed_variables():
            path = [str(entry) for entry in sys.path]
            self._orders.put(TakeOver({**os.environ, **_HASHES}, path, _working_directory()))
            return True
        return False

    def run(self, number: int, count: int, work: bytes) -> ProcessJob:
        """Start a job; the one before is over.

        Args:
            number: number of the job.
            count: number of slots.
            work: the pickled work of a slot.
        """
        job = self._job = ProcessJob(number, count, self._orders.put)
        job.start(work)
        if not self.alive:
            # It may have ended before it knew of this job.
            job.lose_server()
        return job

    def close(self) -> None:
        """End the fork server, and the processes that are left. A second call does nothing."""
        self._orders.put(None)
        shut_down(self._pipe)
        try:
            # Without a job it has no processes, and may still import modules.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.0 if self._job is None else _END_S)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def _send_orders(self) -> None:
        with contextlib.suppress(OSError):
            while (order := self._orders.get()) is not None:
                self._pipe.send(order)
            return
        self._lose_job()

    def _receive_reports(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                ended: EndedProcess = self._pipe.recv()
                if self._job is not None and self._job.number == ended.process.job:
                    self._job.see_end(ended)
        self._lose_job()

    def _lose_job(self) -> None:
        self.alive = False
        if self._job is not None:
            self._job.lose_server()


_prepared: ForkServer | None = None


def prepare_fork_server() -> None:
    """Start a fork server before the program that needs it, for its first run."""
    global _prepared
    _prepared = ForkServer()


def take_fork_server() -> ForkServer:
    """Return the prepared fork server, with the environment that this process has now; otherwise a new one.

    Raises:
        RunnerError: if Python cannot be started.
    """
    global _prepared
    server, _prepared = _prepared, None
    if server is not None:
        if server.take_over():
            return server
        server.close()
    return ForkServer()


def _fixed_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_FIXED)}


def _working_directory() -> str:
    """Return the working directory; it may have been deleted."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""
