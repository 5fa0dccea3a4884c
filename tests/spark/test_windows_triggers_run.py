"""Windows with triggers on Kafka and Spark: both kinds of time, elements, late records, across a restart on an empty disk."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application
from streamrt.kafka import Producer
from streamrt.windows import CountTrigger, EventTimeSessions, EventTimeTrigger, PurgingTrigger, WindowContext
from tests.support import Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]


def told(key: Any, ctx: WindowContext, elements: list[Any]) -> list[Any]:
    total = ctx.global_state.get("total", 0) + len(elements)
    ctx.global_state.set("total", total)
    return [[ctx.window.start, ctx.window.end, elements, total]]


def received(kafka: Kafka, topic: str) -> list[Any]:
    return [json.loads(record.value or b"") for record in kafka.receive(topic, kafka.end(topic), 60)]


def test_triggers_survive_a_restart(kafka: Kafka, tmp_path: Path) -> None:
    source, group = kafka.topic("in", 2), unique("triggers")
    sessions, late, batches, noticed = (kafka.topic(name) for name in ("sessions", "late", "batches", "noticed"))

    def build() -> Application:
        app = kafka.app(group, state_dir=tmp_path / "state")
        sdf = app.dataframe(app.topic(source)).apply(lambda value: value["n"])
        frame = sdf.window(EventTimeSessions(5_000)).process(told)
        # Event time waits for both partitions, however slow the machine is.
        fired = frame.trigger(EventTimeTrigger(), idle_timeout_ms=3_600_000, when_all_idle="hold")
        fired.to_topic(app.topic(sessions))
        fired.side_output("late").to_topic(app.topic(late))
        sdf.global_window().collect().trigger(PurgingTrigger(CountTrigger(3))).to_topic(app.topic(batches))
        sdf.tumbling_window(500, time="processing").count().final().to_topic(app.topic(noticed))
        return app

    def produce(partition: int, *records: tuple[str, int, int]) -> None:
        with Producer(kafka.address, extra_config={"enable.idempotence": False}) as producer:
            for key, number, timestamp in records:
                value = json.dumps({"n": number}).encode()
                producer.produce(source, value, key.encode(), partition=partition, timestamp=timestamp)

    produce(0, ("a", 1, 1_000), ("a", 2, 8_000))
    with running(build()):
        # The window by the wall clock ends without another record.
        wait_until(lambda: kafka.end(noticed) >= 1, what="the end of a window by the wall clock")
    # All state comes from the changelog.
    shutil.rmtree(tmp_path / "state")
    # The first record merges the two sessions. Until it is processed, the other partition holds event time back.
    produce(0, ("a", 3, 4_000), ("end", 0, 100_000))
    with running(build()):
        wait_until(lambda: kafka.end(batches) >= 1, what="the first record")
        produce(1, ("b", 4, 2_000), ("end", 0, 100_000))
        wait_until(lambda: kafka.end(sessions) >= 2, what="the sessions")
        produce(0, ("a", 5, 3_000))
        wait_until(lambda: kafka.end(late) >= 1, what="the late record")
    assert sorted(received(kafka, sessions)) == [[1_000, 13_000, [1, 2, 3], 3], [2_000, 7_000, [4], 1]]
    assert received(kafka, late) == [5]
    assert received(kafka, batches) == [{"start": 1_000, "end": 8_000, "value": [1, 2, 3]}]
