"""Asynchronous calls per second of one slot, without Kafka and Spark: each call takes a given time in the event loop.

One process feeds records to a task, as a slot does, and counts the results that are passed on. Further columns show the most
that a capacity allows, and how long the same calls take one after the other.

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
from streamrt.testing import TopologyTestDriver


def run(chosen: argparse.Namespace, capacity: int, *, ordered: bool) -> float:
    """Return records per second."""
    app = Application(broker_address="unused:9092", processing_mode=chosen.mode)
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
    begun = time.perf_counter()
    driver.pipe_all(topic, values)
    seconds = time.perf_counter() - begun
    if results != chosen.records:
        raise RuntimeError(f"{chosen.records} records had {results} results")
    return float(chosen.records / seconds)


def main() -> None:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "")
    options.add_argument("--records", type=int, default=50_000, help="records per run")
    options.add_argument("--call-ms", type=float, default=1.0, help="duration of a call, in milliseconds")
    options.add_argument("--capacity", type=int, nargs="*", default=[10, 100, 1_000], help="capacities")
    common.add_mode(options)
    chosen = options.parse_args()
    rows: list[list[object]] = []
    for capacity in chosen.capacity:
        for ordered in (True, False):
            rates = [run(chosen, capacity, ordered=ordered) for _ in range(chosen.runs)]
            rate, most = statistics.median(rates), 1_000 / chosen.call_ms * capacity
            order = "ordered" if ordered else "unordered"
            rows.append([capacity, order, f"{rate:,.0f}", f"{most:,.0f}", f"{1_000 / chosen.call_ms:,.0f}"])
    title = f"calls of {chosen.call_ms:g} ms, {chosen.mode}: records per second of one slot"
    common.show(title, ["capacity", "results", "records/s", "limit of the capacity", "one by one"], rows)


if __name__ == "__main__":
    main()
