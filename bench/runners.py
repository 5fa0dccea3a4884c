"""Applications as separate processes, started and ended by a benchmark: StreamRT in both modes, and its peers.

Each run has new processes: none profits from the warm-up of another one, and none waits beside it.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil
from typing_extensions import Self

from bench import common
from bench.peers.systems import PEERS, Peer
from streamrt.errors import JarError

PROCESSES = "processes"
END_S = 30.0
SLOTS = 2
SYSTEMS = ("resident", PROCESSES, "micro-batch", *PEERS)
"""All that can run a case: StreamRT on Spark, without it, in micro-batches, and its peers."""


class RunnerError(Exception):
    """An application ended unexpectedly, or makes no progress."""


@dataclass(frozen=True)
class Runner:
    """The program that runs a case.

    Attributes:
        system: one of `SYSTEMS`: a mode of StreamRT, "processes" for resident mode without Spark, or a peer.
        guarantee: one of `common.GUARANTEES`.
        slots: number of slots, or of processes or threads of a peer, that share the work.
        low_latency: whether a peer is tuned for latency.
    """

    system: str
    guarantee: str = common.GUARANTEES[0]
    slots: int = SLOTS
    low_latency: bool = False

    @property
    def peer(self) -> Peer | None:
        """The peer, or None if this is StreamRT."""
        return PEERS.get(self.system)

    def can(self, case: str) -> bool:
        """Return whether it has this case, with its guarantee."""
        return self.peer is None or (case in self.peer.cases and self.guarantee in self.peer.guarantees)


class Running:
    """A runner that runs a case for as long as the block lasts.

    Example:
        ```python
        with Running(Runner("resident"), "count", address, "in", "out") as running:
            while not_done():
                running.check()
        ```

    Args:
        runner: the runner.
        case: one of `dataframe_cases.CASES`.
        address: the broker.
        source: topic to read, from its beginning.
        target: topic to write.
        master: Spark's master.
        group: the consumer group, for another instance of a running application; by default a new one.
        checkout: the directory of another version of StreamRT to run, with the Python and the libraries of this one.
        state_dir: directory of the state, for an application that is started again; by default a new directory.
        options: more options of the program, for StreamRT.
        environment: more variables of its environment.
        program: the module that has the case, for StreamRT.
    """

    def __init__(
        self,
        runner: Runner,
        case: str,
        address: str,
        source: str,
        target: str,
        *,
        master: str = common.MASTER,
        group: str | None = None,
        checkout: Path | None = None,
        state_dir: Path | None = None,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        program: str = "bench.cases",
    ) -> None:
        self.group = group or common.unique("bench")
        self._runner = runner
        arguments = [case, address, source, target, self.group, "--guarantee", runner.guarantee]
        self._peer = runner.peer
        if self._peer:
            self._command = [*self._peer.command(), *arguments]
            self._command += ["--low-latency"] if runner.low_latency else []
            self._command += ["--threads", str(runner.slots)] if self._peer.one_process else []
        else:
            processes = f"processes[{runner.slots}]"
            mode, place = ("resident", processes) if runner.system == PROCESSES else (runner.system, master)
            self._command = [
                sys.executable,
                "-m",
                program,
                *arguments,
                "--mode",
                mode,
                "--master",
                place,
                *options,
            ]
        self._checkout = checkout
        self._environment = {**os.environ, **(environment or {})}
        self._state_dir = state_dir
        self._scratch = common.scratch()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        directory = self._scratch.__enter__()
        several = self._peer is not None and not self._peer.one_process
        ports = [str(common.free_port()) for _ in range(self._runner.slots)]
        for number in range(self._runner.slots if several else 1):
            log = (directory / f"{number}.log").open("w+b")
            command = [*self._command, "--state-dir", str(self._state_dir or directory / str(number))]
            if self._peer and self._peer.clustered:
                command += ["--process", str(number), "--ports", *ports]
            self._logs.append(log)
            # `python -m` searches the working directory first.
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, cwd=self._checkout, env=self._environment)
            )
        return self

    def __exit__(self, *error: object) -> None:
        tree = self._tree()
        for process in self._processes:
            process.terminate()
        _, alive = psutil.wait_procs(tree, END_S)
        for left in alive:
            left.kill()
        for process, log in zip(self._processes, self._logs, strict=True):
            process.wait()
            log.close()
        self._scratch.__exit__(None, None, None)

    def kill(self) -> None:
        """Kill all its processes, as kill -9 does."""
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def check(self) -> None:
        """Raise an error if a process has ended.

        Raises:
            RunnerError: with the last lines of its log.
        """
        for process, log in zip(self._processes, self._logs, strict=True):
            if process.poll() is not None:
                raise RunnerError(f"{self._runner} ended with {process.returncode}:\n{_last_lines(log)}")

    def imported_at(self) -> float:
        """Return when all processes had imported what they need, as seconds since the epoch; nan if they do not say so."""
        found = []
        for log in self._logs:
            lines = Path(log.name).read_text("utf-8", "replace").splitlines()
            found += [float(line.split()[1]) for line in lines if line.startswith("imported ")][:1]
        return max(found, default=float("nan"))

    def cpu_s(self) -> float:
        """Return the processor time of all its processes in seconds."""
        total = 0.0
        for process in self._tree():
            try:
                # Parents count the time of children that have ended.
                total += sum(process.cpu_times()[:4])
            except psutil.Error:
                continue
        return total

    def memory_mb(self) -> float:
        """Return the memory of all its processes; shared pages are counted once."""
        total = 0.0
        for process in self._tree():
            try:
                memory = process.memory_full_info()
            except psutil.Error:
                continue
            total += (getattr(memory, "pss", 0) or memory.rss) / 1_000_000
        return total

    def _tree(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for process in self._processes:
            try:
                root = psutil.Process(process.pid)
                found += [root, *root.children(recursive=True)]
            except psutil.Error:
                continue
        return found


def installed(systems: Sequence[str]) -> list[str]:
    """Return the systems that can be started; say how to get the others."""
    here = []
    for name in systems:
        try:
            if name in PEERS:
                PEERS[name].command()
            here.append(name)
        except (OSError, JarError) as error:
            common.console.print(f"{name} is left out: {error}", soft_wrap=True)
    return here


def _last_lines(log: IO[bytes], lines: int = 30) -> str:
    log.seek(0)
    return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-lines:])
