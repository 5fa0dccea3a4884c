"""The cases of `bench/dataframe_cases.py` as agents of Faust (faust-streaming).

Settings are its defaults, except those that favour it: no web server; orjson, which its JSON uses if it is there; and
without `--low-latency`, records linger for 5 ms, since otherwise it sends them in requests of a few records.
Tables are in memory with changelogs, as by default. Its windows have no result when they close, so `tumbling` is missing.
With `processing_guarantee="exactly_once"`, its transactions leave out topics that the application does not read itself
(`TransactionManager.send` of faust-streaming 0.15.3): such outputs are visible before a commit, so it has at-least-once only.
"""

import time
from typing import Any

import faust  # type: ignore[import-not-found]

from bench.program_options import peer_options

CASES = ("stateless", "count", "group_by", "seen")
PARTITIONS = 2
LINGER_S = 0.005


def add(app: Any, case: str, source: str, target: str) -> None:
    """Add a case to an application."""
    inputs = app.topic(source, key_type=bytes, value_serializer="json")
    outputs = app.topic(target, key_type=bytes, value_serializer="json")
    counts = app.Table("counts", default=int, partitions=PARTITIONS) if case in ("count", "group_by") else {}

    async def stateless(stream: Any) -> None:
        async for event in stream.events():
            value = event.value
            value["double"] = value["value"] * 2
            if value["double"] >= 0:
                await outputs.send(key=event.key, value=value)

    async def seen(stream: Any) -> None:
        async for event in stream.events():
            value = event.value
            value["seen"] = True
            await outputs.send(key=event.key, value=value)

    async def count(stream: Any) -> None:
        if case == "group_by":
            stream = stream.group_by(lambda value: str(value["key"]), name="key", partitions=PARTITIONS)
        async for event in stream.events():
            key, value = event.key, event.value
            # A key of a table is JSON, and bytes are none.
            name = key.decode() if isinstance(key, bytes) else key
            counts[name] += 1
            value["count"] = counts[name]
            await outputs.send(key=key, value=value)

    app.agent(inputs)({"stateless": stateless, "seen": seen}.get(case, count))


def main() -> None:
    """Run one case until SIGTERM."""
    print("imported", time.time(), flush=True)
    chosen = peer_options(CASES).parse_args()
    app = faust.App(
        chosen.group,
        broker=f"kafka://{chosen.address}",
        datadir=chosen.state_dir,
        web_enabled=False,
        topic_partitions=PARTITIONS,
        topic_replication_factor=1,
        producer_linger=0 if chosen.low_latency else LINGER_S,
        consumer_auto_offset_reset="earliest",
    )
    add(app, chosen.case, chosen.source, chosen.target)
    faust.Worker(app, loglevel="WARNING").execute_from_commandline()


if __name__ == "__main__":
    main()
