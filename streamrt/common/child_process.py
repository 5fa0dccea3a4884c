"""Starts other Python processes that run functions of StreamRT, with a pipe to this process."""

import contextlib
import fcntl
import multiprocessing.spawn
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["shut_down", "socket_of", "start_child"]

# Runs before StreamRT can be imported, because the application may have extended the module search path. The working
# directory must not be searched for Python's modules, and SIGTERM must not end a process that cannot stop cleanly yet.
_BOOTSTRAP = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "from multiprocessing.connection import Connection; pipe = Connection(int(sys.argv[1])); "
    "sys.path[:] = pipe.recv(); from {module} import {function}; {function}(pipe)"
)


def start_child(
    module: str, function: str, title: str, environment: Mapping[str, str] | None = None
) -> "tuple[subprocess.Popen[bytes], Connection[Any, Any]]":
    """Start a Python process that calls a function with its end of a pipe.

    The process has this one's interpreter, warning options, module search path, working directory and error output; its
    input is empty. It ignores SIGTERM until the function decides otherwise. Ctrl+C, which reaches a whole process group,
    does not reach it.

    Args:
        module: name of the module.
        function: name of the function in it.
        title: shown in lists of processes.
        environment: variables that are added to this process's.

    Returns:
        The process, and this process's end of the pipe.

    Raises:
        OSError: if the process cannot be started.

    Example:
        >>> process, pipe = start_child("builtins", "print", "an example", {"PYTHONUNBUFFERED": "1"})
        >>> pipe.close(), process.wait()
        (None, 0)
    """
    ours, theirs = map(_renumber_end, Pipe())
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            [
                os.fsdecode(multiprocessing.spawn.get_executable()),
                *(f"-W{option}" for option in sys.warnoptions),
                "-c",
                _BOOTSTRAP.format(module=module, function=function),
                str(theirs.fileno()),
                title,
            ],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    # If the process has already ended, the next read from the pipe says so.
    with contextlib.suppress(OSError):
        ours.send([str(entry) for entry in sys.path])
    return process, ours


def shut_down(connection: "Connection[Any, Any]") -> None:
    """Shut a connection down; unlike closing, this wakes threads that wait for it."""
    with contextlib.suppress(OSError), socket_of(connection) as own:
        own.shutdown(socket.SHUT_RDWR)


def socket_of(connection: "Connection[Any, Any]") -> socket.socket:
    """Return a socket of its own for a connection, which its owner closes."""
    return socket.socket(fileno=os.dup(connection.fileno()))


def _renumber_end(end: "Connection[Any, Any]") -> "Connection[Any, Any]":
    """Return an end of a pipe whose number is not that of a standard stream, which may be closed in this process."""
    with end:
        return Connection(fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
