"""Processes in which programs run one after another, so that not each of them pays for the start of a Spark.

A program that works with Spark takes 20 s of processor time until its first record: for Java, for the first query, and for
Python workers. Most tests with programs need none of that new; they need a process next to this one, with signals, output
and an exit code. A host is such a process. A test gets one that has nothing to do, and plays its program there as
`__main__`; one that is killed is replaced. What the start or the end of a process is about, or its environment in the
processes of Spark, needs a process of its own: `tests.support.Program`.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from streamrt.runtime.tasks.faults import VARIABLE
from tests.player import END
from tests.support import ROOT, RunningProgram, program_environment


class Turn:
    """The time of a program in a host; it has what `Popen` has.

    Args:
        host: the host.
    """

    def __init__(self, host: "Host") -> None:
        self._host = host
        self._codes: list[int] = []
        self.pid = host.pid

    def end(self, code: int) -> None:
        """Tell that the program has ended, as one of both streams says."""
        self._codes.append(code)

    def poll(self) -> int | None:
        """Return the exit code, if the program has ended."""
        return self._codes[0] if len(self._codes) == 2 else self._host.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"host {self.pid}", timeout or 0.0)
            time.sleep(0.02)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal, if the program runs."""
        if self.poll() is None:
            self._host.send_signal(sig)

    def kill(self) -> None:
        """Kill the program, and so the host."""
        self.send_signal(signal.SIGKILL)


class Host:
    """A process that plays programs.

    Args:
        directory: a directory of its own.
    """

    def __init__(self, directory: Path) -> None:
        self.fault = directory / "fault"
        """Requests faults of Spark's processes: `streamrt.runtime.tasks.faults`. Their environment is that of the start."""
        self._directory = directory
        self._played = 0
        self._program: HostedProgram | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.player"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=self._environment({}),
        )
        self.pid = self._process.pid
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, "out"), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, "err"), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def idle(self) -> bool:
        """Whether it lives and has nothing to do."""
        free = self._program is None or self._program.process.poll() is not None
        return free and self._process.poll() is None

    def play(self, source: str | Path, directory: Path, environment: dict[str, str]) -> "HostedProgram":
        """Run a program.

        Args:
            source: its text, or its file.
            directory: where it works.
            environment: additional environment variables. Spark's processes do not see them.
        """
        assert self.idle
        self.fault.unlink(missing_ok=True)
        self._played += 1
        path = source
        if isinstance(source, str):
            path = directory / f"hosted_{self.pid}_{self._played}.py"
            path.write_text(source)
        self._program = HostedProgram(self)
        order = {"path": str(path), "directory": str(directory), "environment": self._environment(environment)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._program

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process."""
        self._process.send_signal(sig)

    def poll(self) -> int | None:
        """Return the exit code of the process, if it has ended."""
        return self._process.poll()

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(5)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        return program_environment({VARIABLE: str(self.fault), **more})

    def _read(self, lines: Iterable[str], name: str) -> None:
        for line in lines:
            before, end, code = line.partition(END)
            if before and self._program is not None:
                getattr(self._program, name).append(before)
            if end and self._program is not None:
                self._program.process.end(int(code))


class HostedProgram(RunningProgram):
    """A program that is played by a host.

    Args:
        host: the host.
    """

    process: Turn

    def __init__(self, host: Host) -> None:
        super().__init__(Turn(host))
        self.fault = host.fault
        """File that asks its Spark for faults."""
        self._host = host

    def kill(self) -> None:
        """Kill the program, if it still runs, and with it the host."""
        if self.process.poll() is None or self._host.poll() is not None:
            self._host.close()


class Hosts:
    """All hosts of a test run.

    Args:
        directory: where they may write.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._hosts: list[Host] = []
        self._made = 0

    def play(self, source: str | Path, directory: Path, environment: dict[str, str]) -> HostedProgram:
        """Run a program in a host that has nothing to do; see `Host.play`."""
        host = next((host for host in self._hosts if host.idle), None)
        if host is None:
            self._made += 1
            own = self._directory / f"host-{self._made}"
            own.mkdir()
            host = Host(own)
            self._hosts.append(host)
        return host.play(source, directory, environment)

    def close(self) -> None:
        """End them all."""
        for host in self._hosts:
            host.close()
