"""All pairs of operators on Spark and a real broker, in both modes, on one partition and on several."""

import json
from collections import Counter, defaultdict
from functools import partial

import pytest

from streamrt import Application, Topic
from streamrt.config import ProcessingMode
from streamrt.kafka import Producer
from streamrt.testing import TopologyTestDriver
from tests import nasty
from tests.matrix import GROUPED, KEY, OPERATORS, PAIRS, Matrix, build
from tests.support import LONG, PROCESSING_MODES, Kafka, running, unique, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

Results = dict[str, list[str]]
TRIED = [pair for number, pair in enumerate(PAIRS) if LONG or sum(divmod(number, len(OPERATORS))) % 3 == 0]
"""In ordinary runs, each operator is in front of a third of all, and behind a third of them; the driver has all pairs."""


def results(values: list[bytes]) -> Results:
    """Return what came out of each pair, in order."""
    found: Results = defaultdict(list)
    for value in values:
        pair, *rest = json.loads(value)
        found[pair].append(json.dumps(rest, sort_keys=True))
    return dict(found)


def at_least(kafka: Kafka, topic: str, count: int) -> bool:
    return kafka.end(topic) >= count


def test_all_pairs_of_operators_do_on_spark_what_they_do_in_the_test_driver(kafka: Kafka) -> None:
    """One application has them all. The modes take turns in one group: the second one goes on with the state of the first."""
    group, out = unique("matrix"), kafka.topic("out")
    parts = {1: (unique("m"), GROUPED), 3: (unique("m"), TRIED)}

    def application(mode: ProcessingMode) -> tuple[Application, list[Matrix]]:
        app = kafka.app(group, processing_mode=mode)
        target = app.topic(out, key_serializer="str", key_deserializer="str")
        return app, [build(app, prefix, partitions, pairs, target) for partitions, (prefix, pairs) in parts.items()]

    app, matrices = application("micro-batch")
    app.setup_topics()
    done = 0
    with TopologyTestDriver(app) as driver:
        for part, mode in enumerate(PROCESSING_MODES):
            with Producer(kafka.address, extra_config={"enable.idempotence": False}) as producer:
                for matrix in matrices:
                    for topic, value, timestamp in matrix.records(part):
                        driver.pipe(topic, value, key=KEY, timestamp=timestamp, partition=matrix.partition)
                        data, place = json.dumps(value).encode(), matrix.partition
                        producer.produce(topic.name, data, key=KEY.encode(), partition=place, timestamp=timestamp)
            expected = [record.raw_value or b"" for record in driver.read(out)]
            app, matrices = application(mode)
            with running(app):
                wait_until(partial(at_least, kafka, out, done + len(expected)), 300, "all results")
            received = [record.value or b"" for record in kafka.receive(out, kafka.end(out))]
            found, wanted = results(received[done:]), results(expected)
            names = sorted(found.keys() | wanted.keys())
            assert {name: found.get(name) for name in names} == {name: wanted.get(name) for name in names}
            done = len(received)


def skipped(*_: object) -> bool:
    return True


def test_a12_a14_nasty_records_come_out_on_spark_as_in_the_test_driver(kafka: Kafka) -> None:
    """In both modes, on one partition and on three: values, types, keys, headers and timestamps."""
    skip = {f"on_{name}_error": skipped for name in ("consumer", "processing", "producer")}
    group, out = unique("nasty"), kafka.topic("out")
    prefixes = {1: unique("one"), 3: unique("three")}

    def application(mode: ProcessingMode) -> tuple[Application, list[Topic]]:
        app = kafka.app(group, processing_mode=mode, **skip)
        target = app.topic(out, key_serializer="str", key_deserializer="str")
        return app, [nasty.build(app, prefix, partitions, target) for partitions, prefix in prefixes.items()]

    app, sources = application("micro-batch")
    app.setup_topics()
    done = 0
    with TopologyTestDriver(app) as driver:
        for mode in PROCESSING_MODES:
            with Producer(kafka.address) as producer:
                for topic in sources:
                    for number, name in enumerate(nasty.records()):
                        # Each part in one partition, so that the order is the same.
                        driver.pipe_bytes(topic, name, key=b"k", timestamp=1_000 + number)
                        producer.produce(topic.name, name, key=b"k", partition=0, timestamp=1_000 + number)
            expected = Counter((each.raw_key, each.raw_value) for each in driver.read(out))
            app, sources = application(mode)
            with running(app):
                wait_until(partial(at_least, kafka, out, done + expected.total()), 300, "all results")
            received = kafka.receive(out, kafka.end(out))[done:]
            assert Counter((each.key, each.value) for each in received) == expected
            done += len(received)
