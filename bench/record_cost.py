"""Processor time of one stateless record: resident tasks in two processes beside a loop of the client in two processes.

The loop (`bench/handwritten.py`) does what tasks do: it reads JSON, computes a column, filters by it, writes the record
with its key and timestamp, and commits at least once. Both take turns within a run. All time of all processes counts,
that of the client's threads too, from the first fifth of the outputs to the last one.

    python -m bench.record_cost
"""

import subprocess
import sys
import time
from collections.abc import Callable

import psutil

from bench import common
from bench.runners import PROCESSES, SLOTS, Runner, Running
from bench.throughput import BROKER, Written

_BEGIN = 0.2


def spent_s(written: Written, records: int, cpu_s: Callable[[], float]) -> float:
    """Wait until all is written; return the processor time of a record, in seconds."""
    begun = None
    while (done := written.count()) < records:
        if begun is None and done >= _BEGIN * records:
            begun = done, cpu_s()
        time.sleep(0.02)
    if begun is None:
        raise RuntimeError("all records came at once: measure with more")
    return (cpu_s() - begun[1]) / (records - begun[0])


def run_loop(address: str, source: str, target: str, records: int) -> float:
    """Return the processor time of a record in the loop, in seconds."""
    group = common.unique("loop")
    command = [sys.executable, "-m", "bench.handwritten", address, source, target, group]
    loops = [subprocess.Popen(command) for _ in range(SLOTS)]
    try:
        times = [psutil.Process(loop.pid).cpu_times for loop in loops]
        return spent_s(Written(address, target, group, 1), records, lambda: sum(sum(each()[:2]) for each in times))
    finally:
        for loop in loops:
            loop.terminate()
            loop.wait()


def run_tasks(address: str, source: str, target: str, records: int) -> float:
    """Return the processor time of a record in resident tasks, in seconds."""
    with Running(Runner(PROCESSES), "stateless", address, source, target) as running:
        return spent_s(Written(address, target, running.group, 1), records, running.cpu_s)


def main() -> None:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "", runs=3)
    options.add_argument("--records", type=int, default=400_000, help="records per run")
    chosen = options.parse_args()
    spent: dict[str, list[float]] = {"loop": [], "resident tasks": []}
    with common.broker(BROKER) as address:
        source = common.unique("in")
        common.create_topics(address, source)
        common.fill(address, source, chosen.records)
        for _ in range(chosen.runs):
            for name, run in (("loop", run_loop), ("resident tasks", run_tasks)):
                target = common.unique("out")
                common.create_topics(address, target)
                spent[name].append(1e6 * run(address, source, target, chosen.records))
                common.console.print(f"{name}: {spent[name][-1]:.2f} µs")
    best = {name: min(values) for name, values in spent.items()}
    rows: list[list[object]] = [[name, f"{each:.2f}", f"{best['loop'] / each:.2f}"] for name, each in best.items()]
    common.show(f"one record, best of {chosen.runs}", ["", "processor time, µs", "of the loop"], rows)


if __name__ == "__main__":
    main()
