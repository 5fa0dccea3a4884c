"""The applications of the comparisons: one for each case, and a program that runs one until it gets SIGTERM.

The programs in `bench/peers` have the same cases and take the same arguments.

    python -m bench.cases count localhost:9092 in out group --mode resident
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import common
from streamrt import Application, State, Tracing
from streamrt.dataframe import StreamingDataFrame

WINDOW_MS = 10_000


def count(value: dict[str, Any], state: State) -> dict[str, Any]:
    """Count the records of a key."""
    number = state.get("count", 0) + 1
    state.set("count", number)
    value["count"] = number
    return value


def stateless(sdf: StreamingDataFrame) -> StreamingDataFrame:
    """Compute a column and filter by it."""
    sdf["double"] = sdf["value"] * 2
    return sdf[sdf["double"] >= 0]


def keyed_count(sdf: StreamingDataFrame) -> StreamingDataFrame:
    """Count the records of each key, in state."""
    return sdf.apply(count, stateful=True)


def tumbling_count(sdf: StreamingDataFrame) -> StreamingDataFrame:
    """Count the records of each key in windows of ten seconds, emitted when they close."""
    return sdf.tumbling_window(WINDOW_MS).count().final()


def grouped_count(sdf: StreamingDataFrame) -> StreamingDataFrame:
    """Count the records of each value of a column, through a repartition topic."""
    return sdf.group_by("key").apply(count, stateful=True)


def seen(sdf: StreamingDataFrame) -> StreamingDataFrame:
    """Add a column to any record."""
    sdf["seen"] = True
    return sdf


CASES: dict[str, Callable[[StreamingDataFrame], StreamingDataFrame]] = {
    "stateless": stateless,
    "count": keyed_count,
    "tumbling": tumbling_count,
    "group_by": grouped_count,
    "seen": seen,
}


def add(app: Application, case: str, source: str, target: str) -> None:
    """Add a case to an application."""
    sdf = CASES[case](app.dataframe(app.topic(source)))
    sdf.to_topic(app.topic(target, key_serializer="json" if case == "group_by" else "bytes"))


def main() -> None:
    """Run one case until SIGTERM."""
    print("imported", time.time(), flush=True)
    options = argparse.ArgumentParser(description="Run one case until SIGTERM comes.")
    options.add_argument("case", choices=CASES)
    options.add_argument("address", help="the broker")
    options.add_argument("source", help="topic to read")
    options.add_argument("target", help="topic to write")
    options.add_argument("group", help="consumer group")
    options.add_argument("--state-dir", type=Path, required=True)
    options.add_argument("--guarantee", choices=common.GUARANTEES, default=common.GUARANTEES[0])
    common.add_mode(options)
    options.add_argument("--master", default=common.MASTER)
    options.add_argument("--control", help="address of the control server")
    options.add_argument("--sample-ratio", type=float, help="share of the records that begin a trace; none by default")
    chosen = options.parse_args()
    app = common.application(
        chosen.address,
        chosen.state_dir,
        mode=chosen.mode,
        guarantee=chosen.guarantee,
        master=chosen.master,
        consumer_group=chosen.group,
        control=chosen.control,
        tracing=None if chosen.sample_ratio is None else Tracing(chosen.sample_ratio),
    )
    add(app, chosen.case, chosen.source, chosen.target)
    app.run()


if __name__ == "__main__":
    main()
