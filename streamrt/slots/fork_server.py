"""The process from which those of slots are forked: it has imported what tasks need, and shares its memory with them.

It does what the driver's `ProcessSlots` sends through a pipe, and reports which processes have ended. It has no thread,
because threads do not survive a fork, and no module that it imports may start one.

When the driver is gone, the pipe is closed. The tasks hear of it too, and drop their uncommitted work. Those that do not
end are killed.
"""

import contextlib
import ctypes
import gc
import logging
import os
import pickle
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

from streamrt.common.collection import collection_paused

__all__ = ["EndedProcess", "KillProcesses", "StartJob", "StartProcess", "TakeOver", "serve_driver"]

logger = logging.getLogger("streamrt")

_END_S = 5.0
_LOOK_S = 0.1
_LONGEST_ERROR = 500
"""Characters; well below the capacity of a pipe, so that a process never waits until its error is read."""
_FINISHED = b"+"
_FAILED = b"-"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class StartJob:
    """Order to keep the work of a job, for its processes.

    Attributes:
        job: number of the job; the one before is over.
        work: a pickled `RunResident`. It contains secrets.
    """

    job: int
    work: bytes = field(repr=False)


@dataclass(frozen=True)
class TakeOver:
    """Order to have the environment that the driver has now, after a time in which both waited for a program.

    Attributes:
        environment: the variables. They may contain secrets.
        path: the module search path.
        directory: the working directory.
    """

    environment: Mapping[str, str] = field(repr=False)
    path: Sequence[str]
    directory: str

    def apply(self) -> None:
        """Change this process."""
        os.environ.clear()
        os.environ.update(self.environment)
        sys.path[:] = self.path
        # One that is gone cannot be entered, and the driver is in it.
        with contextlib.suppress(OSError):
            os.chdir(self.directory)


@dataclass(frozen=True)
class StartProcess:
    """Order to start the process of a slot.

    Attributes:
        job: number of the job.
        slot: number of the slot.
        attempt: number of earlier processes of this slot in the job.
    """

    job: int
    slot: int
    attempt: int


@dataclass(frozen=True)
class KillProcesses:
    """Order to kill the processes of a job.

    Attributes:
        job: number of the job.
    """

    job: int


@dataclass(frozen=True)
class EndedProcess:
    """Report that the process of a slot has ended.

    Attributes:
        process: the order by which it was started.
        finished: whether its work has returned. A function may also end the process, with any exit code.
        error: the error that ended it, in one line; empty if it raised none.
    """

    process: StartProcess
    finished: bool
    error: str


@dataclass(frozen=True)
class _Child:
    order: StartProcess
    error_fd: int


class _ForkServer:
    """Starts and watches processes.

    Args:
        pipe: the connection to the driver.
    """

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe
        self._children: dict[int, _Child] = {}
        self._works: dict[int, bytes] = {}
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    def serve(self) -> None:
        """Do what the driver orders until it is gone."""
        signal.signal(signal.SIGCHLD, _ignore_signal)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        while True:
            ready = wait([self._pipe, self._woken])
            if self._woken in ready:
                os.read(self._woken, 4_096)
                self._report_ended()
            if self._pipe in ready:
                try:
                    order = self._pipe.recv()
                except (EOFError, OSError):
                    return
                if isinstance(order, StartJob):
                    self._works = {order.job: order.work}
                elif isinstance(order, StartProcess):
                    self._start(order)
                elif isinstance(order, TakeOver):
                    order.apply()
                else:
                    self._kill(order.job)

    def end(self) -> None:
        """Wait a moment for the processes, and kill those that are left."""
        deadline = time.monotonic() + _END_S
        while self._children and time.monotonic() < deadline:
            wait([self._woken], _LOOK_S)
            self._report_ended()
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)

    def _start(self, order: StartProcess) -> None:
        error_fd, write_fd = os.pipe()
        os.set_blocking(error_fd, False)
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            # Such as too many processes.
            os.close(error_fd)
            os.close(write_fd)
            self._report(order, finished=False, error=f"its process cannot be started: {error}")
            return
        if pid == 0:
            self._become_slot(order, write_fd, server)
        os.close(write_fd)
        self._children[pid] = _Child(order, error_fd)

    def _become_slot(self, order: StartProcess, error_fd: int, server: int) -> None:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _end_with_parent(server)
            self._pipe.close()
            for fd in (self._woken, self._waker, *(child.error_fd for child in self._children.values())):
                os.close(fd)
            os.write(error_fd, _run_slot(order, self._works[order.job]))
        finally:
            # Nothing that this process has inherited may run at its end.
            os._exit(0)

    def _report_ended(self) -> None:
        while self._children:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is None:
                continue
            said = b""
            # Nothing is there, and the pipe is open, if a function has forked a process that outlives its own.
            with contextlib.suppress(BlockingIOError):
                said = os.read(child.error_fd, 4 * _LONGEST_ERROR + 1)
            os.close(child.error_fd)
            self._report(child.order, finished=said == _FINISHED, error=said[1:].decode(errors="replace"))

    def _report(self, order: StartProcess, *, finished: bool, error: str) -> None:
        # A driver that is gone does not want to know.
        with contextlib.suppress(OSError):
            self._pipe.send(EndedProcess(order, finished, error))

    def _kill(self, job: int) -> None:
        for pid, child in self._children.items():
            if child.order.job == job:
                os.kill(pid, signal.SIGKILL)


def serve_driver(pipe: "Connection[Any, Any]") -> None:
    """Import what tasks need, and start processes until the driver is gone.

    Args:
        pipe: the connection to the driver.
    """
    # The driver stops the tasks. Handled, not ignored: programs that users' functions start would also ignore them.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignore_signal)
    _open_streams()
    _import_modules()
    server = _ForkServer(pipe)
    try:
        server.serve()
    finally:
        server.end()


def _open_streams() -> None:
    """Open what is closed of the standard streams: files of tasks would take their numbers."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            # The lowest number that is free.
            os.open(os.devnull, os.O_RDWR)


def _end_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent ends, where it can; elsewhere, the end of the link ends the task."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _import_modules() -> None:
    with collection_paused():
        import streamrt.joins.lookup
        import streamrt.slots.resident_task
        import streamrt.windows  # noqa: F401 - loaded for the tasks
        from streamrt.state.rocksdb import load_rocksdb

        load_rocksdb()
    # Garbage collections would touch these objects and so copy their memory pages.
    gc.freeze()


def _run_slot(order: StartProcess, work: bytes) -> bytes:
    """Run the work of a slot; return what is reported about its end."""
    from streamrt.secret import masked

    # What libraries write is not output of the application; what users' functions print takes another way.
    os.dup2(2, 1)
    try:
        pickle.loads(work)(order.slot, order.attempt)
    except BaseException as error:
        logger.debug("the task of slot %d failed", order.slot, exc_info=True)
        text = " ".join(masked(f"{type(error).__name__}: {error}").split())
        return _FAILED + text[:_LONGEST_ERROR].encode()
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
    return _FINISHED


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
