"""The cases of `bench/cases.py` as applications of Quix Streams, for comparison.

Its dependencies conflict with those of StreamRT, so it has a separate environment (`make peers`), and this file imports
nothing from StreamRT:

    build/peers/quix/bin/python bench/peers/on_quix.py count localhost:9092 in out group --state-dir state

Settings are the library's defaults, except those that favour it in latency measurements (`--low-latency`): records are
sent at once, and with exactly-once a transaction is committed every 0.1 s.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

from quixstreams import Application, State  # type: ignore[import-not-found]

WINDOW_MS = 10_000
LOW_LATENCY_COMMIT_S = 0.1


def count(value: dict[str, Any], state: State) -> dict[str, Any]:
    """Count the records of a key."""
    number = state.get("count", 0) + 1
    state.set("count", number)
    value["count"] = number
    return value


def stateless(sdf: Any) -> Any:
    """Compute a column and filter by it."""
    sdf["double"] = sdf["value"] * 2
    return sdf[sdf["double"] >= 0]


def seen(sdf: Any) -> Any:
    """Add a column to any record."""
    sdf["seen"] = True
    return sdf


CASES: dict[str, Callable[[Any], Any]] = {
    "stateless": stateless,
    "count": lambda sdf: sdf.apply(count, stateful=True),
    "tumbling": lambda sdf: sdf.tumbling_window(WINDOW_MS).count().final(),
    "group_by": lambda sdf: sdf.group_by("key").apply(count, stateful=True),
    "seen": seen,
}


def main() -> None:
    """Run one case until SIGTERM."""
    print("imported", time.time(), flush=True)
    options = argparse.ArgumentParser(description="Run one case until SIGTERM comes.")
    options.add_argument("case", choices=CASES)
    options.add_argument("address", help="the broker")
    options.add_argument("source", help="topic to read")
    options.add_argument("target", help="topic to write")
    options.add_argument("group", help="consumer group")
    options.add_argument("--state-dir", required=True)
    options.add_argument("--guarantee", choices=("at-least-once", "exactly-once"), default="at-least-once")
    options.add_argument("--low-latency", action="store_true")
    chosen = options.parse_args()
    settings: dict[str, Any] = {}
    if chosen.low_latency:
        settings["producer_extra_config"] = {"linger.ms": 0}
        if chosen.guarantee == "exactly-once":
            settings["commit_interval"] = LOW_LATENCY_COMMIT_S
    app = Application(
        chosen.address,
        consumer_group=chosen.group,
        auto_offset_reset="earliest",
        state_dir=chosen.state_dir,
        processing_guarantee=chosen.guarantee,
        loglevel="WARNING",
        **settings,
    )
    sdf = CASES[chosen.case](app.dataframe(app.topic(chosen.source)))
    sdf.to_topic(app.topic(chosen.target, key_serializer="json" if chosen.case == "group_by" else "bytes"))
    app.run()


if __name__ == "__main__":
    main()
