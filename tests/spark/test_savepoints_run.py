"""A fork of a savepoint and a repartition, with Spark: counts continue exactly, in both modes."""

import json
from typing import Any

import pytest

from streamrt import Application, State
from streamrt.config import ProcessingMode
from streamrt.kafka import Producer
from tests.support import Kafka, unique

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

KEYS = 6


def count(value: dict[str, Any], state: State) -> dict[str, Any]:
    number = state.get("n", 0) + 1
    state.set("n", number)
    return {**value, "n": number}


def produce(kafka: Kafka, topic: str, begin: int, end: int) -> None:
    with Producer(kafka.address, extra_config={"enable.idempotence": False}) as producer:
        for number in range(begin, end):
            producer.produce(topic, json.dumps({"i": number}).encode(), key=b"key-%d" % (number % KEYS))


def counted(kafka: Kafka, topic: str, begin: int, end: int) -> None:
    found = [json.loads(record.value or b"") for record in kafka.receive_exactly(topic, end - begin, 60)]
    assert {each["i"]: each["n"] for each in found} == {i: i // KEYS + 1 for i in range(begin, end)}


def test_a_fork_and_a_repartition_go_on(kafka: Kafka) -> None:
    source, group = kafka.topic("orders", 2), unique("group")

    def run(group: str, output: str, mode: ProcessingMode, number: int) -> Application:
        app = kafka.app(group, processing_mode=mode, processing_guarantee="exactly-once")
        app.dataframe(app.topic(source)).apply(count, stateful=True).to_topic(app.topic(output))
        if number:
            app.run(count=number, timeout=60, collect=False)
        return app

    first, second = (kafka.topic("out") for _ in range(2))
    produce(kafka, source, 0, 12)
    run(group, first, "micro-batch", 12).savepoint("a")
    produce(kafka, source, 12, 20)
    fork = run(unique("fork"), second, "micro-batch", 0)
    fork.restore_savepoint("a", group=group)
    fork.run(count=8, timeout=60, collect=False)
    counted(kafka, second, 12, 20)
    run(group, first, "resident", 8).repartition(5)
    produce(kafka, source, 20, 32)
    run(group, first, "resident", 12)
    counted(kafka, first, 0, 32)
