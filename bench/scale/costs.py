"""The cost of a record: processor time of all processes of an application but the broker's, and memory."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench import common
from bench.runners import PROCESSES, Runner, RunnerError, Running
from bench.scale.running import END_S, end_of
from streamrt.kafka import TopicAdmin

PROGRAM = "bench.scale.program"
_EVERY_S = 0.05


@dataclass(frozen=True)
class Cost:
    """Processor time and memory of an application.

    Attributes:
        start_s: seconds until its first output.
        record_us: processor time of a record in microseconds.
        rate: records per second.
        peak_mb: the highest memory.
    """

    start_s: float
    record_us: float
    rate: float
    peak_mb: float


def runner_of(chosen: argparse.Namespace) -> Runner:
    """Return the runner that is chosen."""
    is_plain = chosen.master.startswith("processes")
    return Runner(PROCESSES if is_plain else chosen.mode, chosen.guarantee)


def place_of(chosen: argparse.Namespace) -> str:
    """Return where and how applications run, for titles."""
    return f"{chosen.mode}, {chosen.guarantee}, {chosen.master}"


def measure_cost(
    chosen: argparse.Namespace,
    case: str,
    address: str,
    source: str,
    *,
    records: int,
    skip: int,
    partitions: int = common.PARTITIONS,
    number: int = 1,
    others_s: Callable[[], float] = lambda: 0.0,
    environment: Mapping[str, str] | None = None,
) -> Cost:
    """Run a case until it has an output for each record, as often as chosen; return the medians of what it took.

    Args:
        chosen: mode, guarantee, master and runs.
        case: a case of `bench.scale.program`.
        address: the broker.
        source: the topic, or the beginning of the names of topics, with the records.
        records: their number.
        skip: number of outputs before the measurement begins.
        partitions: partitions of each topic of outputs.
        number: for the case.
        others_s: returns the processor time of further processes.
        environment: more variables of its environment.
    """
    costs: list[Cost] = []
    for _ in range(chosen.runs):
        target = common.unique("out")
        targets = [target] if case != "frames" else [f"{target}-{each}" for each in range(number)]
        common.create_topics(address, *targets, partitions=partitions)
        options = ("--number", str(number))
        begun = time.monotonic()
        with Running(
            runner_of(chosen),
            case,
            address,
            source,
            target,
            master=chosen.master,
            options=options,
            environment=environment,
            program=PROGRAM,
        ) as running:
            outputs = Outputs(running, address, targets, partitions)
            outputs.wait(1)
            start_s = time.monotonic() - begun
            first = outputs.wait(max(1, skip))
            spent, begun = running.cpu_s() + others_s(), time.monotonic()
            measured = outputs.wait(records) - first
            seconds, spent = time.monotonic() - begun, running.cpu_s() + others_s() - spent
        if measured <= 0:
            raise RunnerError("all outputs came at once: measure with more records")
        costs.append(Cost(start_s, 1e6 * spent / measured, measured / seconds, outputs.peak_mb))
        common.console.print(f"{case} {number}, {records:,} records: {costs[-1].record_us:.1f} µs of a processor")
    columns = zip(*((cost.start_s, cost.record_us, cost.rate, cost.peak_mb) for cost in costs), strict=True)
    return Cost(*map(common.median, columns))


class Outputs:
    """Waits for outputs of a program, and measures its memory meanwhile.

    Args:
        running: the program.
        address: the broker.
        topics: the topics of the outputs.
        partitions: partitions of each.

    Attributes:
        peak_mb: the highest memory.
    """

    def __init__(self, running: Running, address: str, topics: Sequence[str], partitions: int) -> None:
        self.peak_mb = 0.0
        self._running = running
        self._admin = TopicAdmin(address)
        self._topics = topics
        self._partitions = partitions
        self._measured_at = 0.0

    def wait(self, wanted: int) -> int:
        """Wait for so many outputs in total; return how many there are.

        Raises:
            RunnerError: if the program ended, or they do not come in time.
        """
        deadline = time.monotonic() + END_S
        while (done := end_of(self._admin, *self._topics, partitions=self._partitions)) < wanted:
            self._running.check()
            now = time.monotonic()
            if now > deadline:
                raise RunnerError(f"{done:,} outputs came, and not {wanted:,}")
            if now > self._measured_at + 1:
                self._measured_at, self.peak_mb = now, max(self.peak_mb, self._running.memory_mb())
            time.sleep(_EVERY_S)
        return done
