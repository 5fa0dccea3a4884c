"""Process functions on Kafka and Spark: state, timers of both kinds and side outputs, across a restart on an empty disk."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streamrt import Application, Context, ProcessFunction, TimeDomain, TimerContext
from streamrt.kafka import Producer
from streamrt.topology import MetricId
from tests.support import Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]


class Gather(ProcessFunction):
    """Gathers values of a key: tells them at event time, and that there are some after a moment of the wall clock."""

    outputs: ClassVar[tuple[str, ...]] = ("noticed",)

    def process_element(self, value: Any, ctx: Context) -> None:
        if value["n"] < 0:
            return
        values = ctx.state.list("values")
        if values.is_empty():
            ctx.register_event_time_timer(ctx.timestamp + 60_000)
            ctx.register_processing_time_timer(ctx.current_processing_time + 500)
        values.add(value["n"])
        ctx.metrics.counter("gathered").inc()
        counts = ctx.state.map("counts")
        counts[value["n"] % 2] = counts.get(value["n"] % 2, 0) + 1

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        values = list(ctx.state.list("values"))
        if ctx.time_domain is TimeDomain.PROCESSING_TIME:
            ctx.output("noticed", len(values))
            return
        yield [timestamp, values, list(ctx.state.map("counts").items())]
        ctx.state.clear()


def received(kafka: Kafka, topic: str) -> list[tuple[bytes | None, Any]]:
    return [(record.key, json.loads(record.value or b"")) for record in kafka.receive(topic, kafka.end(topic), 10)]


@pytest.mark.both_modes
@pytest.mark.rows("PF-E13", "PF-L7", "PF-L8")
def test_timers_and_collections_survive_a_restart(kafka: Kafka, tmp_path: Path) -> None:
    source, results, noticed, group = kafka.topic("in", 2), kafka.topic("out"), kafka.topic("noticed"), unique("gather")

    def build() -> Application:
        app = kafka.app(group, state_dir=tmp_path / "state")
        frame = app.dataframe(app.topic(source)).process(Gather(), idle_timeout_ms=2_000, when_all_idle="hold")
        frame.to_topic(app.topic(results))
        frame.side_output("noticed").to_topic(app.topic(noticed))
        return app

    def produce(partition: int, *records: tuple[str, int, int]) -> None:
        with Producer(kafka.address, extra_config={"enable.idempotence": False}) as producer:
            for key, number, timestamp in records:
                value = json.dumps({"n": number}).encode()
                producer.produce(source, value, key.encode(), partition=partition, timestamp=timestamp)

    produce(0, *(("a", number, 1_000 + number) for number in range(3)))
    produce(1, *(("b", number, 2_000 + number) for number in range(2)))
    app = build()
    with running(app):
        # No record comes meanwhile: the wall clock wakes the tasks.
        wait_until(lambda: kafka.end(noticed) == 2, what="both")
        gathered = MetricId(source, "process_Gather", "gathered")
        wait_until(lambda: gathered in app._state.progress.meters.snapshot().functions, what="the metric")
        assert app._state.progress.meters.snapshot().functions[gathered].total >= 5
    assert received(kafka, results) == []
    # All state comes from the changelog.
    shutil.rmtree(tmp_path / "state")
    produce(0, ("a", 7, 3_000))
    with running(build()):
        produce(0, ("late", -1, 100_000))
        produce(1, ("late", -1, 100_000))
        wait_until(lambda: kafka.end(results) == 2, what="the timers of event time")
    assert sorted(received(kafka, results), key=repr) == [
        (b"a", [61_000, [0, 1, 2, 7], [[0, 2], [1, 2]]]),
        (b"b", [62_000, [0, 1], [[0, 1], [1, 1]]]),
    ]
