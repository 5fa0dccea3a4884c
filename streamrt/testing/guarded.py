"""Java servers that end with the process that started them."""

import contextlib
import logging
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import BinaryIO

from streamrt.errors import KafkaStartError
from streamrt.testing import kafka_guard

__all__ = ["HOST", "GuardedProcess", "error_in_log", "free_port", "is_free"]

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
# Below the system's port range for outgoing connections (32768 and up on Linux): otherwise a client that tries to
# reach a killed server could get that very port and connect to itself.
_PORTS = range(20_000, 32_000)


class GuardedProcess:
    """A running command that ends with this process, also after a crash.

    Args:
        command: the command.
        log: file for its output.
        kept: descriptor of an open file that the command keeps, such as a lock.
        scratch: directory to remove if this process ends before the command.
        working_dir: working directory of the command; by default that of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: BinaryIO,
        *,
        kept: int,
        scratch: Path | None = None,
        working_dir: Path | None = None,
    ) -> None:
        # A separate session: Ctrl+C in the terminal goes to this process, which then ends the command.
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [
                *(sys.executable, "-I", "-S", kafka_guard.__file__),
                *(str(os.getpid()), str(scratch or ""), str(kept)),
                *command,
            ],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=working_dir,
            start_new_session=True,
            pass_fds=(kept,),
        )

    @property
    def pid(self) -> int:
        """Process id of the command."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Return whether the command is running."""
        return self._process.poll() is None

    def wait(self) -> None:
        """Wait until the command ends."""
        self._process.wait()

    def end(self, how: signal.Signals, timeout_s: float, name: str) -> None:
        """End the command, and kill it if it does not end in time.

        Args:
            how: the signal that asks it to end.
            timeout_s: time limit in seconds.
            name: its name, for the log.
        """
        self._process.send_signal(how)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            logger.warning("the %s did not shut down within %g s; killing it", name, timeout_s)
            self._process.kill()
            self._process.wait()
        finally:
            # Not before, because the guard takes the closing of this pipe for the end of this process.
            if self._process.stdin is not None:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()


def is_free(port: int) -> bool:
    """Return whether no program listens at a port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java does; otherwise the closed connections of an earlier server would make a port look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(taken: Collection[int] = ()) -> int:
    """Return a free port.

    Args:
        taken: ports not to choose.

    Raises:
        KafkaStartError: if none was found.
    """
    # Random, so that servers that start at the same moment rarely choose the same port.
    for port in random.sample(_PORTS, k=200):
        if port not in taken and is_free(port):
            return port
    raise KafkaStartError(f"no free port was found on {HOST} between {_PORTS.start} and {_PORTS.stop}")


def error_in_log(lines: Sequence[str]) -> str:
    """Return the line of a Java log that best explains why the program ended."""
    causes = [line.partition("Caused by:")[2].strip() for line in lines if "Caused by:" in line]
    if causes:
        return causes[-1]
    errors = [
        line.strip()
        for line in lines
        if re.search(r"\b(ERROR|FATAL|Exception|Error)\b|Exception:|Error:", line)
        and not line.lstrip().startswith("at ")
    ]
    # A stack trace begins with the exception; the line before it only names its reporter.
    exceptions = [line for line in errors if re.match(r"(Exception in thread|[\w.$]+(Exception|Error)\b)", line)]
    if exceptions or errors:
        return (exceptions or errors)[-1].removeprefix('Exception in thread "main" ')
    return next((line.strip() for line in reversed(lines) if line.strip()), "it logged nothing")
