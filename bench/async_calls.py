"""Asynchronous calls per second of one slot, without Kafka and Spark: each call takes a given time in the event loop.

One process feeds records to a task, as a slot does, and counts the results that are passed on; garbage is collected as in the
processes of tasks. The columns:

- calls per second, the median of the runs, and the most that the capacity allows;
- processor time of a call in both threads, the task's and the event loop's, the best of the runs. The load of the machine
  changes it little, but calls per second much;
- processor time of the same call as a bare task of asyncio, without StreamRT;
- how many calls a second of processor time is enough for.

    python -m bench.async_calls
"""

import argparse
import asyncio
import gc
import statistics
import time
from datetime import timedelta
from typing import Any

from bench import common
from streamrt import Application
from streamrt.common.collection import collect_on_request
from streamrt.testing import TopologyTestDriver


def run(chosen: argparse.Namespace, capacity: int, *, ordered: bool) -> tuple[float, float]:
    """Return records per second, and the processor time of a record in microseconds."""
    app = Application(broker_address="unused:9092", processing_mode=chosen.mode, loglevel=None)
    topic = app.topic("in", value_deserializer="bytes", value_serializer="bytes")
    results = 0
    pause = chosen.call_ms / 1_000

    async def call(value: Any) -> Any:
        await asyncio.sleep(pause)
        return value

    def count(value: Any) -> None:
        nonlocal results
        results += 1

    frame = app.dataframe(topic).apply_async(call, timeout=timedelta(seconds=30), capacity=capacity, ordered=ordered)
    # Results end here: the test driver would keep them.
    frame.update(count).filter(lambda value: False)
    driver = TopologyTestDriver(app)
    driver.pipe_all(topic, [b"x"] * capacity)
    results = 0
    values = [b"x"] * chosen.records
    gc.collect()
    begun, begun_cpu = time.perf_counter(), time.process_time()
    driver.pipe_all(topic, values)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    if results != chosen.records:
        raise RuntimeError(f"{chosen.records} records had {results} results")
    return chosen.records / seconds, cpu / chosen.records * 1e6


def run_bare(chosen: argparse.Namespace, at_once: int) -> float:
    """Return the processor time of a call as a task of asyncio, in microseconds."""
    pause = chosen.call_ms / 1_000

    async def call(value: Any) -> Any:
        await asyncio.sleep(pause)
        return value

    async def call_all() -> None:
        for first in range(0, chosen.records, at_once):
            await asyncio.gather(*(call(b"x") for _ in range(first, min(first + at_once, chosen.records))))

    gc.collect()
    begun = time.process_time()
    asyncio.run(call_all())
    return float((time.process_time() - begun) / chosen.records * 1e6)


def compare(chosen: argparse.Namespace) -> None:
    """Show the figures of each capacity.

    Args:
        chosen: the options `runs`, `mode`, `records`, `call_ms` and `capacity`.
    """
    collect_on_request()
    rows: list[list[object]] = []
    for capacity in chosen.capacity:
        most = f"{1_000 / chosen.call_ms * capacity:,.0f}"
        bare = min(run_bare(chosen, capacity) for _ in range(chosen.runs))
        for ordered in (True, False):
            measured = [run(chosen, capacity, ordered=ordered) for _ in range(chosen.runs)]
            rate = statistics.median(rate for rate, _ in measured)
            # What else the machine does makes runs slower, never faster.
            cpu = min(cpu for _, cpu in measured)
            order = "ordered" if ordered else "unordered"
            rows.append([capacity, order, f"{rate:,.0f}", most, f"{cpu:.1f}", f"{bare:.1f}", f"{1e6 / cpu:,.0f}"])
    title = f"calls of {chosen.call_ms:g} ms, {chosen.mode}, one slot"
    common.show(title, ["capacity", "results", "calls/s", "limit", "µs", "bare, µs", "per second"], rows)


def add_options(options: argparse.ArgumentParser) -> None:
    """Add the options of `compare`, except for runs and records."""
    options.add_argument("--call-ms", type=float, default=1.0, help="duration of an asynchronous call, in milliseconds")
    options.add_argument("--capacity", type=int, nargs="*", default=[10, 100, 1_000], help="capacities of apply_async")
    common.add_mode(options)


def main() -> None:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "")
    options.add_argument("--records", type=int, default=50_000, help="records per run")
    add_options(options)
    compare(options.parse_args())


if __name__ == "__main__":
    main()
