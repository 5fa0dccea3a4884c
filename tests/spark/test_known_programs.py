"""Programs with known outputs on Kafka and Spark: a bounded run of one application that has all of them."""

import json

import pytest

from streamrt.config import ProcessingMode
from streamrt.kafka import Consumer, Producer, TopicConfig
from streamrt.kafka.client import partition_offsets
from streamrt.models import TopicPartition
from streamrt.topics import Topic
from tests.known_programs import ALL, Out, Parts
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAMS = [program for program in ALL if not program.in_driver_alone]
KEPT = {"retention.ms": "-1"}
"""Records are of 1970."""


def received(kafka: Kafka, topics: list[str], count: int) -> dict[str, list[tuple[str, object, int]]]:
    """Return the committed records of topics of one partition; fewer than `count` if they do not come, or one more."""
    found: dict[str, list[tuple[str, object, int]]] = {topic: [] for topic in topics}
    with Consumer(kafka.address, unique("reader"), "earliest", auto_commit_enable=False) as consumer:
        consumer.assign(partition_offsets({TopicPartition(topic, 0): 0 for topic in topics}))
        left = count + 1
        while left:
            message = consumer.poll(30 if left > 1 else 1)
            if message is None:
                break
            assert message.error() is None
            key, value = message.key() or b"", json.loads(message.value() or b"null")
            found[message.topic() or ""].append((key.decode(), value, message.timestamp()[1]))
            left -= 1
    return found


@pytest.mark.both_modes
def test_programs_in_a_bounded_run(kafka: Kafka, processing_mode: ProcessingMode) -> None:
    # Each mode with another guarantee; the test driver has all combinations.
    group, guarantee = unique("group"), "exactly-once" if processing_mode == "resident" else "at-least-once"
    app = kafka.app(group, processing_guarantee=guarantee)
    run = unique("known")
    played = [(each, Parts(app, partitions=each.partitions, prefix=f"{run}-{each.name}-")) for each in PROGRAMS]
    for program, parts in played:
        program.build(parts)
    expected = {parts.name(topic): program.expected(topic) for program, parts in played for topic in parts.outputs}
    inputs = {
        parts.name(record.topic): program.partitions.get(record.topic, 1)
        for program, parts in played
        for record in program.records()
    }
    topics = {**dict.fromkeys(expected, 1), **inputs}
    kafka.admin.create_topics([Topic(name, TopicConfig(count, 1, KEPT)) for name, count in topics.items()])
    with Producer(kafka.address, extra_config={"enable.idempotence": False}) as producer:
        for program, parts in played:
            for record in program.records() if not program.has_source else ():
                producer.produce(
                    parts.name(record.topic),
                    json.dumps(record.value).encode(),
                    key=(record.key or "").encode(),
                    timestamp=record.timestamp,
                    partition=record.partition,
                )
    (rules,) = (name for name in inputs if name.endswith("rules"))
    app.start(until="end", paused=True, timeout=1_500)
    # All rules are there before the first order.
    app.resume(rules)
    wait_until(lambda: kafka.committed(group, rules) == 2, what="the rules")
    app.resume()
    app.wait()
    found = received(kafka, list(expected), sum(map(len, expected.values())))
    for name, outputs in expected.items():
        records = found[name]
        if name.endswith("rules-out"):
            # Tasks of three partitions write to this topic.
            records = sorted(records, key=lambda record: record[2])
        assert [Out(*record, topic=out.topic) for record, out in zip(records, outputs, strict=True)] == outputs, name
