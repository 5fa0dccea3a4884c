"""Both processing modes give the same results: random topologies get random records, good and bad, and time that passes."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Application, State, StreamingDataFrame, TopicConfig
from streamrt.config import ProcessingMode
from streamrt.connectors import BatchingSink, ListSink, SinkBatch
from streamrt.errors import SinkBackpressureError, StreamRTError
from streamrt.testing import TopologyTestDriver
from tests.support import LONG

SEEDS = range(3_000 if LONG else 8)
STEPS = 30

Operators = Callable[[StreamingDataFrame, StreamingDataFrame], StreamingDataFrame]


class Moody(BatchingSink):
    """A sink that wants a pause from time to time."""

    def __init__(self, moods: list[bool]) -> None:
        super().__init__()
        self.moods = moods
        self.written: list[tuple[str, int, int, Any]] = []

    def write(self, batch: SinkBatch) -> None:
        if self.moods and self.moods.pop():
            raise SinkBackpressureError(1.0)
        self.written += [(batch.topic, batch.partition, item.offset, item.value) for item in batch]


def refuse_bad(value: Any) -> Any:
    if value["bad"]:
        raise ValueError("a bad record")
    return value


def count(value: Any, state: State) -> Any:
    state.set("sum", state.get("sum", 0) + value["x"])
    return {**refuse_bad(value), "sum": state.get("sum")}


OPERATORS: dict[str, Operators] = {
    "state": lambda left, _: left.apply(count, stateful=True),
    "group_by": lambda left, _: left.group_by("group").apply(count, stateful=True),
    "window": lambda left, _: left.apply(refuse_bad).tumbling_window(100, grace_ms=50).count().final(),
    "window with a watermark": lambda left, _: (
        left.apply(refuse_bad).tumbling_window(100).count().final(closing_strategy="watermark", idle_timeout_ms=500)
    ),
    "asof join": lambda left, right: left.join_asof(right, how="left", on_merge="keep-left", grace_ms=500).apply(
        refuse_bad
    ),
    "interval join": lambda left, right: left.join_interval(
        right, on_merge="keep-left", grace_ms=500, backward_ms=100, forward_ms=100
    ).apply(refuse_bad),
    "concat": lambda left, right: left.concat(right).apply(count, stateful=True),
}


def results(mode: ProcessingMode, name: str, seed: int) -> list[object]:
    """Return all that an application did in a mode: what a seed decides is the same in both."""
    chance = random.Random(seed)
    partitions = chance.choice((1, 2, 3))
    app = Application(
        "unused:9092",
        consumer_group="group",
        loglevel=None,
        processing_mode=mode,
        processing_guarantee=chance.choice(("at-least-once", "exactly-once")),
        on_processing_error=chance.choice((None, lambda *_: True)),
    )
    left, right, output = (
        app.topic(
            name, key_deserializer="str", key_serializer="str", config=TopicConfig(partitions, replication_factor=1)
        )
        for name in ("left", "right", "output")
    )
    sdf = OPERATORS[name](app.dataframe(left), app.dataframe(right)).to_topic(output)
    moody, plain = Moody([chance.random() < 0.3 for _ in range(STEPS)]), ListSink(metadata=True)
    # What a sink refuses while time passes is delivered again at another moment in each mode.
    if chance.random() < 0.5 and "watermark" not in name:
        sdf.sink(moody)
    if chance.random() < 0.5:
        sdf.sink(plain)
    done: list[object] = []
    with TopologyTestDriver(app, start=1_000) as driver:
        for _ in range(STEPS):
            try:
                step(driver, chance, partitions)
            except StreamRTError as error:
                done.append((type(error), str(error)))
            done.append(
                [(record.key, record.value, record.timestamp, record.headers) for record in driver.read("output")]
            )
    # What time makes is numbered by the ticks of a millisecond, which are not as many in each mode.
    rows = [{**row, "_offset": max(-1, row["_offset"])} for row in plain]
    return [*done, moody.written, rows]


def step(driver: TopologyTestDriver, chance: random.Random, partitions: int) -> None:
    """Let time pass, or give the application a record."""
    topic, partition = chance.choice(("left", "right")), chance.randrange(partitions)
    kind, timestamp = chance.random(), chance.choice((None, chance.randrange(3_000)))
    value = {"x": chance.randrange(5), "group": chance.choice("pq"), "bad": chance.random() < 0.1}
    if kind < 0.15:
        driver.advance(chance.randrange(800))
    elif kind < 0.2:
        driver.pipe_bytes(topic, b"{", key=b"a", partition=partition)
    else:
        driver.pipe(topic, value, key=chance.choice(("a", "b", None, "")), timestamp=timestamp, partition=partition)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.slow
def test_both_modes_give_the_same_results(name: str) -> None:
    for seed in SEEDS:
        assert results("micro-batch", name, seed) == results("resident", name, seed), seed
