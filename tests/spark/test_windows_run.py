"""Windows on Spark and Kafka: the same results as the naive model, through restarts, lost disks, and when all is quiet."""

import json
import random
import shutil
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from streamrt import Application
from streamrt.kafka import Producer
from tests.support import Kafka, running, unique, wait_until
from tests.unit.window_model import (
    Model,
    Output,
    Record,
    Window,
    append,
    expected,
    shown,
    side_by_side,
    single,
    sort_out,
)

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 3
WINDOWS = [
    Window("tumbling", 1_000, grace=200, aggregation="agg", closing="partition"),
    Window("hopping", 1_000, 300, aggregation="count", final=False),
    Window("sliding", 400, grace=100, aggregation="mean"),
    Window("session", 150, grace=100, aggregation="reduce", closing="partition"),
]


def records_of(seed: int, count: int) -> list[Record]:
    """Return records of 45 keys, mostly in order, some late, some of them without keys or values."""
    chance = random.Random(seed)
    now, records = 5_000, []
    for _ in range(count):
        now += chance.choice((0, 1, 3, 20))
        number = chance.randrange(45)
        key = None if chance.random() < 0.01 else b"" if number == 0 else b"key-%d" % number
        timestamp = now - (chance.randrange(1_500) if chance.random() < 0.1 else chance.randrange(50))
        value = None if chance.random() < 0.03 else chance.randrange(-20, 20) / 2
        records.append(Record(key, timestamp, value, number % PARTITIONS))
    return records


def produce(kafka: Kafka, topic: str, records: Sequence[Record]) -> None:
    with Producer(kafka.address, extra_config={"enable.idempotence": False}) as producer:
        for record in records:
            producer.produce(
                topic,
                json.dumps(record.value).encode(),
                key=record.key,
                partition=record.partition,
                timestamp=record.timestamp,
            )


def run(app: Application, source: str) -> list[dict[str, Any]]:
    """Process what there is; return the outputs, each with its window's name."""
    side_by_side(app.dataframe(app.topic(source)), WINDOWS)
    return app.run(timeout=0.5, metadata=True)


@pytest.mark.both_modes
def test_windows_are_those_of_the_model_through_restarts(kafka: Kafka) -> None:
    source, group = kafka.topic("in", PARTITIONS), unique("windows")
    records = records_of(7, 3_000)
    rows = []
    for half, wiped in ((records[:1_600], True), (records[1_600:], False)):
        produce(kafka, source, half)
        # Each half takes several micro-batches.
        rows += run(kafka.app(group, processing_guarantee="exactly-once", commit_every=800), source)
        if wiped:
            shutil.rmtree(kafka.state_dir)
    for number in range(PARTITIONS):
        outputs = [(row["_value"], row["_key"], row["_timestamp"]) for row in rows if row["_partition"] == number]
        mine = [record for record in records if record.partition == number]
        for window, found in zip(WINDOWS, sort_out(outputs, len(WINDOWS)), strict=True):
            wanted = expected(window, mine)
            assert len(wanted) > 100
            assert shown(found) == shown(wanted), window


@pytest.mark.both_modes
def test_what_is_quiet_closes(kafka: Kafka) -> None:
    """Neither a key that comes no more, nor a partition without records, nor the end of all records holds a window open."""
    source, target = kafka.topic("in", PARTITIONS), kafka.topic("out")
    app = kafka.app(processing_guarantee="exactly-once", commit_interval=0.2)
    sdf = app.dataframe(app.topic(source))
    closing: dict[str, Any] = {"closing_strategy": "watermark", "idle_timeout_ms": timedelta(seconds=2)}
    sdf = sdf.tumbling_window(1_000).reduce(append, single).final(**closing)
    sdf.to_topic(app.topic(target))

    produced = [Record(b"quiet", 5_100, 1, 0), Record(b"b", 5_300, 3, 1)]
    produce(kafka, source, produced)
    with running(app):
        wait_until(lambda: app.progress().records == 2, what="the first records")
        # Only one partition goes on, and after a while no one waits for the others.
        while kafka.end(target) == 0:
            more = Record(b"b", 5_300 + 100 * len(produced), len(produced), 1)
            produce(kafka, source, [more])
            produced.append(more)
            time.sleep(0.1)
            assert len(produced) < 1_000
        # Then all are quiet, and event time goes on by itself: the last windows also close.
        wanted = sorted(shown(outputs_of(produced)))
        found = read(kafka, target, len(wanted))
        assert sorted(shown(found)) == wanted
        # What comes for them now is late; what comes for later ones is not.
        last = produced[-1].timestamp
        produce(kafka, source, [Record(b"late", last, 6, 1), Record(b"new", last + 60_000, 7, 1)])
        (new,) = read(kafka, target, len(wanted) + 1)[len(wanted) :]
        assert (new.key, new.value["value"]) == (b"new", [7])


def outputs_of(records: Sequence[Record]) -> list[Output]:
    """Return the windows that records make, when all are closed."""
    model = Model(Window("tumbling", 1_000, closing="watermark"))
    for record in records:
        model.record(record)
    return model.tick(1 << 40)


def read(kafka: Kafka, topic: str, count: int) -> list[Output]:
    found = [
        Output(json.loads(record.value or b""), record.key or b"", record.timestamp)
        for record in kafka.receive(topic, count)
    ]
    assert len(found) == count
    return found
