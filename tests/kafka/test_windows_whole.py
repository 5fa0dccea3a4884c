"""Windows over a whole stream on a real broker: several partitions, two processes, a restart in the middle of a window."""

import json

import pytest

from streamrt import Application
from streamrt.kafka import Producer
from streamrt.windows import Count, Max, Sum
from tests.support import Kafka, running, unique

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

START, WINDOW, PARTITIONS, EACH = 1_700_000_000_000, 10_000, 3, 50
STEP = WINDOW // EACH


def define(kafka: Kafka, group: str, source: str, target: str) -> Application:
    app = kafka.app(group, spark_master="processes[2]", processing_mode="resident", processing_guarantee="exactly-once")
    windows = app.dataframe(app.topic(source)).tumbling_window(WINDOW, name="w")
    whole = windows.agg_all(n=Count(), total=Sum("x"), most=Max("x")).final(idle_timeout_ms=600)
    whole.to_topic(app.topic(target, key_serializer="str"))
    return app


def produce(kafka: Kafka, source: str, first: int, end: int) -> None:
    with Producer(kafka.address, extra_config={"enable.idempotence": False}) as producer:
        for number in range(first, end):
            for partition in range(PARTITIONS):
                value = json.dumps({"x": number * PARTITIONS + partition}).encode()
                producer.produce(source, value, b"k", partition=partition, timestamp=START + number * STEP)


def test_each_window_has_the_records_of_all_partitions_once(kafka: Kafka) -> None:
    source, target, group = kafka.topic("in", PARTITIONS), kafka.topic("out"), unique("group")
    middle = 2 * EACH + EACH // 2
    produce(kafka, source, 0, middle)
    define(kafka, group, source, target).run(timeout=0.5)
    produce(kafka, source, middle, 4 * EACH)
    with running(define(kafka, group, source, target)):
        records = kafka.receive_exactly(target, 4)
    numbers = [range(window * EACH * PARTITIONS, (window + 1) * EACH * PARTITIONS) for window in range(4)]
    assert [json.loads(record.value or b"null") for record in records] == [
        {
            "start": START + window * WINDOW,
            "end": START + (window + 1) * WINDOW,
            "n": EACH * PARTITIONS,
            "total": sum(each),
            "most": max(each),
        }
        for window, each in enumerate(numbers)
    ]
    assert {record.key for record in records} == {b"all"}
