"""Applications as separate processes, started and ended by a benchmark: StreamRT in both modes, and the peer.

Each run has new processes: none profits from the warm-up of another one, and none waits beside it.
"""

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

import psutil
from typing_extensions import Self

from bench import common

PEER = "peer"
PROCESSES = "processes"
PEER_VARIABLE = "STREAMRT_BENCH_PEER_PYTHON"
PEER_VERSION = "3.28.1"
END_S = 30.0
SLOTS = 2
_PEER_PROGRAM = Path(__file__).with_name("peer.py")


class RunnerError(Exception):
    """An application ended unexpectedly, or makes no progress."""


@dataclass(frozen=True)
class Runner:
    """The program that runs a case.

    Attributes:
        system: a mode of StreamRT, "processes" for resident mode without Spark, or "peer".
        guarantee: one of `common.GUARANTEES`.
        processes: number of processes that share the work; StreamRT has one, with two slots.
        low_latency: whether a peer is tuned for latency.
    """

    system: str
    guarantee: str = common.GUARANTEES[0]
    processes: int = 1
    low_latency: bool = False

    @property
    def is_peer(self) -> bool:
        """Whether this is the peer and not StreamRT."""
        return self.system == PEER


AnyRunner = TypeVar("AnyRunner", Runner, Runner | None)


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
        case: one of `cases.CASES`.
        address: the broker.
        source: topic to read, from its beginning.
        target: topic to write.
        peer_python: the Python environment of the peer.
        master: Spark's master.
        group: the consumer group, for another instance of a running application; by default a new one.
        checkout: the directory of another version of StreamRT to run, with the Python and the libraries of this one.
        state_dir: directory of the state, for an application that is started again; by default a new directory.
        options: more options of the program, for StreamRT.
        environment: more variables of its environment.
    """

    def __init__(
        self,
        runner: Runner,
        case: str,
        address: str,
        source: str,
        target: str,
        *,
        peer_python: str | None = None,
        master: str = common.MASTER,
        group: str | None = None,
        checkout: Path | None = None,
        state_dir: Path | None = None,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.group = group or common.unique("bench")
        self._runner = runner
        arguments = [case, address, source, target, self.group, "--guarantee", runner.guarantee]
        if not runner.is_peer:
            mode, place = ("resident", f"processes[{SLOTS}]") if runner.system == PROCESSES else (runner.system, master)
            self._command = [
                sys.executable,
                "-m",
                "bench.cases",
                *arguments,
                "--mode",
                mode,
                "--master",
                place,
                *options,
            ]
        elif peer_python is None:
            raise RunnerError(how_to_get_peer())
        else:
            self._command = [peer_python, str(_PEER_PROGRAM), *arguments]
            self._command += ["--low-latency"] if runner.low_latency else []
        self._checkout = checkout
        self._environment = {**os.environ, **(environment or {})}
        self._state_dir = state_dir
        self._scratch = common.scratch()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        directory = self._scratch.__enter__()
        for number in range(self._runner.processes):
            log = (directory / f"{number}.log").open("w+b")
            command = [*self._command, "--state-dir", str(self._state_dir or directory / str(number))]
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


def add_options(options: argparse.ArgumentParser) -> None:
    """Add the options that name the peer."""
    options.add_argument(
        "--peer-python",
        default=os.environ.get(PEER_VARIABLE),
        help=f"a Python that has Quix Streams, to compare with; ${PEER_VARIABLE} by default",
    )


def available(wanted: Mapping[str, AnyRunner], peer_python: str | None) -> dict[str, AnyRunner]:
    """Return the runners that can be started, by name; explain how to get the others."""
    here = {name: runner for name, runner in wanted.items() if not (runner and runner.is_peer and not peer_python)}
    if len(here) < len(wanted):
        common.console.print(how_to_get_peer(), soft_wrap=True)
    return here


def how_to_get_peer() -> str:
    """Return the instructions for a comparison with the peer."""
    return (
        "Quix Streams is not compared with. To do so, make an environment of its own for it: "
        f"`python3 -m venv peer && peer/bin/pip install quixstreams=={PEER_VERSION}`, then name it: "
        f"`--peer-python peer/bin/python`, or {PEER_VARIABLE}=peer/bin/python."
    )


def _last_lines(log: IO[bytes], lines: int = 30) -> str:
    log.seek(0)
    return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-lines:])
