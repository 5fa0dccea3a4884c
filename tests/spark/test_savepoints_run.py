"""A savepoint that one mode has made, and a fork of it with more partitions that the other mode continues, with Spark."""

import json
from typing import Any

import pytest

from streamrt import Application, State
from streamrt.config import ProcessingMode
from streamrt.errors import TopicConfigurationError
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


def test_a_fork_with_more_partitions_goes_on(kafka: Kafka) -> None:
    source = kafka.topic("orders", 2)

    def app(group: str, output: str, mode: ProcessingMode) -> Application:
        app = kafka.app(group, processing_mode=mode, processing_guarantee="exactly-once")
        app.dataframe(app.topic(source)).apply(count, stateful=True).to_topic(app.topic(output))
        return app

    group, first, second = unique("group"), kafka.topic("out"), kafka.topic("out")
    produce(kafka, source, 0, 12)
    original = app(group, first, "micro-batch")
    original.run(count=12, timeout=300, collect=False)
    counted(kafka, first, 0, 12)
    original.savepoint("a")
    fork = app(unique("fork"), second, "resident")
    fork.restore_savepoint("a", group=group)
    fork.repartition(5)
    produce(kafka, source, 12, 32)
    fork.run(count=20, timeout=300, collect=False)
    counted(kafka, second, 12, 32)
    with pytest.raises(TopicConfigurationError, match=r"has 2 partitions and topic .* has 5 partitions"):
        original.run(count=1, timeout=300)
