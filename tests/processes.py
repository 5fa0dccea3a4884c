"""Processes that tests halt and let go on."""

import contextlib
import signal
from collections.abc import Iterable
from pathlib import Path

import psutil

from tests.support import wait_until


def process_tree(pid: int) -> list[psutil.Process]:
    """Return a process with everything that it has started."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def freeze(processes: Iterable[psutil.Process]) -> None:
    """Halt processes, and wait until none of their threads runs any more.

    The signal by itself is not enough: until some thread of the process has taken it, which takes long on a busy machine,
    the others go on and answer.
    """
    halted = list(processes)
    _send(halted, signal.SIGSTOP)
    wait_until(lambda: all(map(_is_halted, halted)), what=f"the halt of {halted}")


def thaw(processes: Iterable[psutil.Process]) -> None:
    """Let frozen processes go on."""
    _send(processes, signal.SIGCONT)


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _is_halted(process: psutil.Process) -> bool:
    threads = Path(f"/proc/{process.pid}/task")
    try:
        if not threads.exists():
            return bool(process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
        # The state follows the name, which may hold anything, parentheses too.
        states = [(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in threads.iterdir()]
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        # A thread has ended meanwhile, or all have.
        return not psutil.pid_exists(process.pid)
    return all(state in "TtZX" for state in states)
