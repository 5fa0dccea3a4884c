"""Records per second with windows, from Kafka through windows to Kafka: a tumbling count, and a sliding mean.

Each run reads a topic that was filled before; a first run is not counted. Rates are measured between the first and the
last report, so they are those of a warm application. Each key has a record for each second of event time; with a
million keys, for each five seconds, so all those windows of ten seconds are open at once, and close at once. A tumbling
window is emitted when it closes, a sliding one with each record.

The memory is that of the whole process tree, Spark's JVM included. It must not depend on the length of a run, nor on
the number of keys beyond what is cached: the bound is printed, and exceeding it is an error.

    python -m bench.windows --case tumbling --keys 1000
"""

import argparse
import sys
from collections.abc import Callable

from bench import common
from streamrt import Application

CASES = ("tumbling", "sliding")
MANY = 1_000_000
KEYS = (1, 1_000, MANY)
WINDOW_MS = 10_000
BOUND_MB = 3_000
START_MS = 1_700_000_000_000


def add(app: Application, case: str, source: str, target: str) -> None:
    """Add a case to an application."""
    sdf = app.dataframe(app.topic(source))
    if case == "tumbling":
        sdf = sdf.tumbling_window(WINDOW_MS).count().final(closing_strategy="partition")
    else:
        sdf = sdf.apply(lambda value: value["value"]).sliding_window(WINDOW_MS).mean().current()
    sdf.to_topic(app.topic(target))


def event_time(keys: int) -> Callable[[int], int]:
    """Return a function that gives the timestamp of a record by its number."""
    step_ms = 1_000 if keys < MANY else 5_000
    return lambda number: START_MS + number * step_ms // keys


def run(address: str, case: str, keys: int, chosen: argparse.Namespace) -> tuple[float, float]:
    """Process one filled topic; return records per second and peak memory in megabytes."""
    source, target = common.unique("in"), common.unique("out")
    common.create_topics(address, source, target)
    # Long enough that a window of each key closes.
    records = max(chosen.records, 3 * keys)
    common.fill(address, source, records, keys=keys, timestamp=event_time(keys))
    with common.scratch() as state_dir:
        app = common.application(address, state_dir, mode=chosen.mode, guarantee=chosen.guarantee, master=chosen.master)
        add(app, case, source, target)
        with common.PeakMemory() as memory:
            rate = common.measure(app, records)
        return rate, memory.peak_mb


def main() -> int:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "", runs=2)
    options.add_argument("--records", type=int, default=1_000_000, help="records per run; at least three for each key")
    options.add_argument("--keys", type=int, help="only with so many different keys")
    options.add_argument("--case", choices=CASES, help="only one case")
    options.add_argument("--guarantee", choices=common.GUARANTEES, default=common.GUARANTEES[0])
    common.add_mode(options)
    chosen = options.parse_args()
    rows: list[list[object]] = []
    highest = 0.0
    with common.broker() as address:
        for case in (chosen.case,) if chosen.case else CASES:
            for keys in (chosen.keys,) if chosen.keys else KEYS:
                results = [run(address, case, keys, chosen) for _ in range(chosen.runs + 1)]
                peak = max(memory for _, memory in results)
                highest = max(highest, peak)
                rows.append([case, f"{keys:,}", common.median([rate for rate, _ in results[1:]]), peak])
    title = f"windows, {chosen.mode}, {chosen.guarantee}, median of {chosen.runs}; memory may be {BOUND_MB:,} MB"
    common.show(title, ["case", "keys", "records/s", "peak memory MB"], rows)
    if highest > BOUND_MB:
        common.console.print(f"memory was {highest:,.0f} MB, more than {BOUND_MB:,} MB")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
