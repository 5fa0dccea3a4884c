"""Processor time of each test, and of all programs that it starts: `pytest -p tests.processor_time`.

On a machine that others use, wall time says little. The last lines are `<seconds> cpu <test>`, the costliest first; the
first of them is the whole run, with imports and collection. Time that a program takes after the test that started it, such as
the Spark of a session, belongs to the test that runs meanwhile.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PERIOD_S = 1.0
"""How often to look at programs: those that nobody waits for are gone afterwards."""
SHOWN = 40
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Seen(NamedTuple):
    """A process as it was seen last; its seconds include those of ended children that it waited for."""

    parent: int
    seconds: float


def read_processes() -> dict[tuple[int, int], Seen]:
    """Return all processes, by id and time of start."""
    processes = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        processes[int(directory.name), int(fields[19])] = Seen(
            int(fields[1]), sum(map(int, fields[11:15])) / TICKS_PER_S
        )
    return processes


class ProcessorTimes:
    """Adds up the time of this process and its descendants."""

    def __init__(self) -> None:
        self.tests: dict[str, float] = {}
        self._known: dict[tuple[int, int], Seen] = {}
        self._gone_s = 0.0
        self._total_s = 0.0
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="processor times", daemon=True)

    def total_s(self, looks: bool = True) -> float:
        """Return the seconds that this process and its descendants have taken."""
        with self._lock:
            if looks or len(self._known) > 1:
                self._look()
            total_s = self._sum()
            # Where no one waits for the children of a process, as Spark's daemon of workers, their time goes with it.
            self._gone_s += max(0.0, self._total_s - total_s)
            self._total_s = max(self._total_s, total_s)
            return self._total_s

    def _sum(self) -> float:
        others = sum(process.seconds for key, process in self._known.items() if key[0] != os.getpid())
        return sum(os.times()[:4]) + others + self._gone_s

    def _look(self) -> None:
        everything = read_processes()
        known = {key for key in everything if key[0] == os.getpid() or key in self._known}
        ids = {pid for pid, _ in known}
        while more := [key for key, process in everything.items() if process.parent in ids and key not in known]:
            known.update(more)
            ids.update(pid for pid, _ in more)
        self._known = {key: everything[key] for key in known}

    def _watch(self) -> None:
        while not self._done.wait(PERIOD_S):
            with self._lock:
                self._look()

    @pytest.hookimpl
    def pytest_sessionstart(self) -> None:
        self._thread.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begun = self.total_s(looks=False)
        yield
        self.tests[item.nodeid] = self.total_s(looks=False) - begun

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._done.set()
        self._thread.join()
        costliest = sorted(self.tests.items(), key=lambda test: -test[1])[:SHOWN]
        for name, seconds in [("the whole run", self.total_s()), *costliest]:
            terminalreporter.write_line(f"{seconds:.2f} cpu {name}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ProcessorTimes(), "processor-times")
