"""A count by key in one slot of PyFlink, with worker processes, beside the same in a task: `bench.processors --case pyflink`.

PyFlink's job reads numbers that the JVM makes, keeps state in the JVM without checkpoints, and drops its results. The task
reads JSON, counts in RocksDB, writes results as JSON and a changelog into memory, and commits every 10,000 records; it has no
Kafka and no Spark. What both pay for their start is left out: figures are those of the difference between a long and a
short run.
"""

import argparse
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench import common
from streamrt import Application, Context, ProcessFunction
from streamrt.app import definition_of
from streamrt.jvm.java import find_java
from streamrt.records import TimestampType, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.testing.cluster import MemoryCluster
from streamrt.testing.memory import MemoryClients

_COMMIT_EVERY = 10_000
_SHORT = 5
"""A short run is this much shorter."""


class Count(ProcessFunction):
    """Counts the records of a key."""

    def process_element(self, value: Any, ctx: Context) -> list[int]:
        """Count a record."""
        count = ctx.state.value("n", default=0)
        new = count.value() + 1
        count.update(new)
        return [new]


def compare(chosen: argparse.Namespace) -> None:
    """Show records per second of PyFlink and of a task, in turn."""
    rates: dict[str, list[tuple[float, float]]] = {"PyFlink": [], "StreamRT": []}
    with _flink(chosen.flink, chosen.keys) as flink:
        _run_flink(flink, chosen.elements // _SHORT)
        for _ in range(chosen.rounds):
            short, long = (_run_flink(flink, number) for number in (chosen.elements // _SHORT, chosen.elements))
            rates["PyFlink"].append(_rates(short, long, chosen.elements))
            short, long = (_run_task(number, chosen.keys) for number in (chosen.elements // _SHORT, chosen.elements))
            rates["StreamRT"].append(_rates(short, long, chosen.elements))
    rows: list[list[object]] = []
    for name, found in rates.items():
        rows.append([name, *(f"{max(each):,.0f}" for each in zip(*found, strict=True))])
    title = f"a count in a value state, {chosen.keys:,} keys, best of {chosen.rounds}"
    common.show(title, ["one slot", "records/s", "records per second of a processor"], rows)


def _rates(short: tuple[float, float], long: tuple[float, float], elements: int) -> tuple[float, float]:
    """Return records per second of the clock and of a processor, from the seconds of two runs."""
    more = elements - elements // _SHORT
    wall, processor = (more / max(1e-9, after - before) for before, after in zip(short, long, strict=True))
    return wall, processor


# -- PyFlink -----------------------------------------------------------------------------------------------------------


@contextmanager
def _flink(python: str, keys: int) -> Iterator[subprocess.Popen[str]]:
    command = [python, str(Path(__file__).with_name("pyflink_count.py")), str(keys)]
    java = {"JAVA_HOME": str(find_java().home)}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **java}
    )
    assert process.stdin is not None
    with process, process.stdin:
        yield process


def _run_flink(flink: subprocess.Popen[str], elements: int) -> tuple[float, float]:
    """Return seconds of the clock and of processors, of all processes of PyFlink, for one job."""
    assert flink.stdin is not None
    assert flink.stdout is not None
    spent = _spent(flink.pid)
    flink.stdin.write(f"{elements}\n")
    flink.stdin.flush()
    for line in flink.stdout:
        if line.startswith("seconds"):
            return float(line.split()[1]), _spent(flink.pid) - spent
    raise RuntimeError("PyFlink ended without an answer: its messages are above")


def _spent(pid: int) -> float:
    """Return the processor time of a process and its descendants, in seconds, with those that have ended."""
    process = psutil.Process(pid)
    total = 0.0
    for each in (process, *process.children(recursive=True)):
        try:
            total += sum(each.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


# -- StreamRT ----------------------------------------------------------------------------------------------------------


def _run_task(records: int, keys: int) -> tuple[float, float]:
    """Return seconds of the clock and of the processor, for records of one partition."""
    names = [b"key-%d" % number for number in range(keys)]
    with common.scratch() as folder:
        tasks, clients = _task(folder)
        source = TopicPartition("in", 0)
        begun, spent = time.perf_counter(), time.process_time()
        for number, first in enumerate(range(0, records, _COMMIT_EVERY)):
            size = min(_COMMIT_EVERY, records - first)
            chunk = Chunk(
                "in",
                0,
                list(range(first, first + size)),
                [names[offset % keys] for offset in range(first, first + size)],
                [b'{"value": 5}'] * size,
                list(range(first, first + size)),
                [TimestampType.TIMESTAMP_CREATE_TIME] * size,
            )
            clients.offsets[source] = first
            tasks.run([chunk], BatchContext(positions={source: first}, number=number))
        found = time.perf_counter() - begun, time.process_time() - spent
        tasks.close()
    return found


def _task(folder: Path) -> tuple[TaskExecutor, MemoryClients]:
    app = Application("unused.invalid:9092", consumer_group="bench", loglevel=None, state_dir=folder)
    app.dataframe(app.topic("in")).process(Count()).to_topic(app.topic("out"))
    definition = definition_of(app)
    spec = definition.rehearse_start(definition.task_spec(count_outputs=True, collect=False), MemoryCluster(), folder)
    clients = MemoryClients(lambda: 0)
    return TaskExecutor(spec, clients), clients
