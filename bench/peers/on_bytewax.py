"""The cases of `bench/dataframe_cases.py` as dataflows of bytewax.

Settings are its defaults, except those that favour it: it runs as processes, not as threads, which would share one
interpreter; JSON is read and written by orjson; and with `--low-latency` records are sent at once. State is in its
recovery store (SQLite), at least once. It has no consumer group, no exactly-once, and no repartition topic: each operator
with keys exchanges records between the processes, so `group_by` would be the same as `count`.
"""

import time
from datetime import datetime, timedelta, timezone
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]
import orjson
from bytewax._bytewax import cli_main  # type: ignore[import-not-found]
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.operators import windowing
from bytewax.recovery import RecoveryConfig, init_db_dir  # type: ignore[import-not-found]

from bench.program_options import peer_options

WINDOW = timedelta(seconds=10)
START = datetime(2020, 1, 1, tzinfo=timezone.utc)
CASES = ("stateless", "count", "tumbling", "seen")


def stateless(message: Any) -> Any:
    """Compute a column and filter by it."""
    value = orjson.loads(message.value)
    value["double"] = value["value"] * 2
    return KafkaSinkMessage(message.key, orjson.dumps(value)) if value["double"] >= 0 else None


def seen(message: Any) -> Any:
    """Add a column to any record."""
    value = orjson.loads(message.value)
    value["seen"] = True
    return KafkaSinkMessage(message.key, orjson.dumps(value))


def count(number: int | None, message: Any) -> tuple[int, Any]:
    """Count the records of a key."""
    number = (number or 0) + 1
    value = orjson.loads(message.value)
    value["count"] = number
    return number, KafkaSinkMessage(message.key, orjson.dumps(value))


def keyed(message: Any) -> tuple[str, Any]:
    """Return a record with its key."""
    return message.key.decode(), message


def event_time(message: Any) -> datetime:
    """Return the time of a record."""
    return datetime.fromtimestamp(message.timestamp[1] / 1_000, timezone.utc)


def closed(window: tuple[str, tuple[int, int]]) -> Any:
    """Return the result of a window."""
    key, (_, number) = window
    return KafkaSinkMessage(key.encode(), b"%d" % number)


def dataflow(case: str, address: str, source: str, target: str, producer: dict[str, str]) -> Any:
    """Return a case."""
    flow = Dataflow(case)
    # -2 is the beginning of a topic.
    records = op.input("in", flow, KafkaSource([address], [source], starting_offset=-2, tail=True))
    if case in ("stateless", "seen"):
        outputs = op.filter_map("map", records, stateless if case == "stateless" else seen)
    else:
        by_key = op.map("key", records, keyed)
        if case == "count":
            outputs = op.map("value", op.stateful_map("count", by_key, count), lambda item: item[1])
        else:
            clock = windowing.EventClock(event_time, wait_for_system_duration=timedelta(0))
            windower = windowing.TumblingWindower(align_to=START, length=WINDOW)
            windows = windowing.fold_window(
                "count", by_key, clock, windower, int, lambda number, _: number + 1, int.__add__
            )
            outputs = op.map("value", windows.down, closed)
    op.output("out", outputs, KafkaSink([address], target, add_config=producer))
    return flow


def main() -> None:
    """Run one case until SIGTERM."""
    print("imported", time.time(), flush=True)
    options = peer_options(CASES)
    options.add_argument("--process", type=int, default=0, help="number of this process")
    options.add_argument("--ports", type=int, nargs="*", default=[], help="a port for each process")
    chosen = options.parse_args()
    flow = dataflow(
        chosen.case, chosen.address, chosen.source, chosen.target, {"linger.ms": "0"} if chosen.low_latency else {}
    )
    if not list(chosen.state_dir.glob("*.sqlite3")):
        chosen.state_dir.mkdir(parents=True, exist_ok=True)
        init_db_dir(chosen.state_dir, 1)
    addresses = [f"127.0.0.1:{port}" for port in chosen.ports]
    recovery = RecoveryConfig(str(chosen.state_dir))
    cli_main(
        flow,
        workers_per_process=1,
        process_id=chosen.process if len(addresses) > 1 else None,
        addresses=addresses if len(addresses) > 1 else None,
        epoch_interval=None,
        recovery_config=recovery,
    )


if __name__ == "__main__":
    main()
