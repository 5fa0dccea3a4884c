"""Run a command that does not outlive the process that started it.

`python kafka_guard.py OWNER SCRATCH LOCK COMMAND...` forks a watcher and then *becomes* the command. The command
therefore has the process id that the owner knows. Only it keeps the open file with the number LOCK. When the owner has
ended, the watcher kills the command and removes the directory SCRATCH, unless that is an empty string. The watcher
detects the end on standard input, a pipe whose other end the owner holds. On Linux it also uses the owner's process
descriptor, because the pipe stays open as long as any process forked by the owner has a copy of it.

`PR_SET_PDEATHSIG` would need no watcher, but it fires when the *thread* that started the command ends.

This file is run by its path, without site-packages, so that it starts in some 20 ms: it must import nothing
but the standard library.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Fork the watcher and become the command.

    Args:
        arguments: process id of the owner, directory to remove after it (or ""), number of the open file that
            only the command keeps, the command.

    Returns:
        1 if the owner ended before the command began; otherwise this does not return.

    Example:
        >>> main(["1", "", "2", "/bin/true"])  # doctest: +SKIP
    """
    owner, scratch, lock, *command = arguments
    process = os.getpid()
    watched = [0, *_list_descriptors(int(owner), process)]
    if os.getppid() == int(owner):
        if os.fork() == 0:
            os.close(int(lock))
            _watch_process(watched, process, scratch)
            os._exit(0)
        for descriptor in watched:
            os.close(descriptor)
        os.open(os.devnull, os.O_RDONLY)  # becomes standard input, the lowest free number
        os.execv(command[0], command)  # noqa: S606 - the owner's command
    return 1


def _list_descriptors(*processes: int) -> list[int]:
    if not hasattr(os, "pidfd_open"):
        return []
    # Old kernels and some sandboxes lack it; the pipe still works there.
    with contextlib.suppress(OSError):
        return [os.pidfd_open(process) for process in processes]
    return []


def _watch_process(watched: list[int], command: int, scratch: str) -> None:
    # Owner and command may have ended since the fork; the answer then comes at once.
    select.select(watched, [], [])
    # When the command has ended, this process has another parent, and there is nothing to do.
    if os.getppid() != command:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(command, signal.SIGKILL)
    if len(watched) > 1:
        select.select(watched[2:], [], [], 10.0)
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
