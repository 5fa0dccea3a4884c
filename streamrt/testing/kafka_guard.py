"""Run a command that does not outlive the process that started it.

`python kafka_guard.py OWNER SCRATCH LOCK COMMAND...` forks a watcher and then *becomes* the command, so that
the command has the process id that the owner knows, and keeps the open file with the number LOCK for itself.
As soon as the owner is gone, the watcher kills the command and removes the directory SCRATCH if that is not
empty text. It learns that from standard input, a pipe whose other end the owner holds, and on Linux also from
the owner's process descriptor, because the pipe stays open as long as anything that the owner forked holds a
copy of it.

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
        arguments: process id of the owner, directory to remove with it (or ""), number of the open file that
            only the command keeps, the command.

    Returns:
        1 if the owner ended before the command began; otherwise this does not return.

    Example:
        >>> main(["1", "", "2", "/bin/true"])  # doctest: +SKIP
    """
    owner, scratch, lock, *command = arguments
    process = os.getpid()
    watched = [0, *_descriptors(int(owner), process)]
    if os.getppid() == int(owner):
        if os.fork() == 0:
            os.close(int(lock))
            _watch(watched, process, scratch)
            os._exit(0)
        for descriptor in watched:
            os.close(descriptor)
        os.open(os.devnull, os.O_RDONLY)  # becomes standard input, the lowest number that is free
        os.execv(command[0], command)  # noqa: S606 - the owner's command
    return 1


def _descriptors(*processes: int) -> list[int]:
    if not hasattr(os, "pidfd_open"):
        return []
    # Old kernels and some sandboxes do not have it; the pipe still works there.
    with contextlib.suppress(OSError):
        return [os.pidfd_open(process) for process in processes]
    return []


def _watch(watched: list[int], command: int, scratch: str) -> None:
    # Owner and command may have ended between the fork and here; then the answer comes at once.
    select.select(watched, [], [])
    # When the command has ended, this process has another parent; then there is nothing to do.
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
