"""`concat` on Spark and a real broker: two topics as one stream, in the order of time, through restarts and crashes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import TopicConfigurationError
from streamrt.kafka import Producer
from streamrt.models import TopicPartition
from streamrt.state import State
from tests.chaos import tasks_of
from tests.hosts import HostedProgram
from tests.spark.stateful import GUARANTEES, admin_client, changelog
from tests.support import ONE_MODE, Kafka, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

Timed = list[tuple[int, Any]]


def feed(kafka: Kafka, topic: str, partition: int, records: Timed) -> None:
    """Produce values with timestamps; the key is the number of the partition."""
    with Producer(kafka.address, extra_config={"enable.idempotence": False}) as producer:
        for timestamp, value in records:
            data, key = json.dumps(value).encode(), str(partition).encode()
            producer.produce(topic, data, key=key, partition=partition, timestamp=timestamp)


def number(value: Any, state: State) -> list[Any]:
    """Return the value with its number among all of its key."""
    n: int = state.get("n", 0) + 1
    state.set("n", n)
    return [value, n]


def joined(kafka: Kafka, group: str, left: str, right: str, **settings: Any) -> Application:
    app = kafka.app(group, **settings)
    frames = [app.dataframe(app.topic(name, key_deserializer="str")) for name in (left, right)]
    frames[0].concat(frames[1]).apply(number, stateful=True)
    return app


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_backlog_is_processed_in_the_order_of_time(kafka: Kafka, guarantee: str) -> None:
    left, right, group = kafka.topic("left", 2), kafka.topic("right", 2), unique("concat")
    # First one of them is dense, and then the other: batches of equal numbers of records never reach equally far in time.
    slow, quick = 20, 400
    expected: dict[str, list[tuple[int, str]]] = {"0": [], "1": []}
    for partition in range(2):
        for topic, counts in ((left, (quick, slow)), (right, (slow, quick))):
            times = [
                1_000 + half * 8_000 + step * (8_000 // count)
                for half, count in enumerate(counts)
                for step in range(count)
            ]
            feed(kafka, topic, partition, [(at, partition) for at in times])
            expected[str(partition)] += [(at, topic) for at in times]

    def run() -> dict[str, list[tuple[int, str, int]]]:
        # Small batches, so that there are many of them.
        app = joined(kafka, group, left, right, processing_guarantee=guarantee, commit_every=300)
        found: dict[str, list[tuple[int, str, int]]] = {"0": [], "1": []}
        for row in app.run(timeout=1, metadata=True):
            found[row["_key"]].append((row["_timestamp"], row["_topic"], row["_value"][1]))
        return found

    found = run()
    for key, records in expected.items():
        assert found[key] == [(at, topic, n) for n, (at, topic) in enumerate(sorted(records), start=1)]
    assert kafka.admin.inspect_topics([changelog(group, "--".join(sorted((left, right))))]).popitem()[1] is not None
    # State goes on after a restart without local files, and with records of one topic only.
    shutil.rmtree(kafka.state_dir)
    feed(kafka, right, 1, [(20_000, 1)])
    total = len(expected["1"])
    assert run() == {"0": [], "1": [(20_000, right, total + 1)]}
    feed(kafka, left, 1, [(30_000, 1), (40_000, 1)])
    assert run() == {"0": [], "1": [(30_000, left, total + 2), (40_000, left, total + 3)]}
    if guarantee == "at-least-once":
        # The group has forgotten its offsets; the state of both tells where they were.
        client = admin_client(kafka)
        client.delete_consumer_groups([group])[group].result(20)
        feed(kafka, right, 1, [(50_000, 1)])
        assert run() == {"0": [], "1": [(50_000, right, total + 4)]}
    places = [TopicPartition(name, partition) for name in (left, right) for partition in range(2)]
    ends = {place: kafka.admin.offset_bounds([place])[place][1] for place in places}
    assert kafka.admin.committed(group, places) == ends


PROGRAM = """
import json
from streamrt import Application

def number(value, state):
    n = state.get("n", 0) + 1
    state.set("n", n)
    return [value, n]

app = Application({address!r}, consumer_group={group!r}, auto_offset_reset="earliest",
                  processing_guarantee="exactly-once", state_dir={state_dir!r}, commit_interval=0.2)
left, right = (app.dataframe(app.topic(name)) for name in {sources!r})
left.concat(right).apply(number, stateful=True).to_topic(app.topic({target!r}))
app.run()
"""


def test_workers_that_die_count_nothing_twice(
    kafka: Kafka, hosted: Callable[..., HostedProgram], tmp_path: Path, processing_mode: str
) -> None:
    left, right, target = kafka.topic("left"), kafka.topic("right"), kafka.topic("out")
    text = PROGRAM.format(
        address=kafka.address,
        group=unique("group"),
        state_dir=str(tmp_path / "state"),
        sources=(left, right),
        target=target,
    )
    app = hosted(text)
    fault, done = app.fault, 0
    for step, point in enumerate(("changelog-produced", "committed", "fenced")):
        fault.write_text(f"{point}:exit")
        for offset, topic in enumerate((left, right)):
            at = 10_000 * (step + 1) + offset
            feed(kafka, topic, 0, [(at + 2 * n, at + 2 * n) for n in range(20)])
        done += 40
        if processing_mode == "resident" and point == "fenced":
            # Resident tasks pass it only when they open their stores.
            for process in wait_until(lambda: tasks_of(app), what="a process that runs tasks"):
                process.kill()
        wait_until(lambda: not fault.exists(), what=f"the fault at {point}")
        values = kafka.values(target, done)
        assert [n for _, n in values] == list(range(1, done + 1))
    assert len({value for value, _ in values}) == done
    assert app.end()[0] == 0
    kafka.receive_exactly(target, done)


@ONE_MODE
def test_topics_with_different_numbers_of_partitions_are_refused(kafka: Kafka) -> None:
    left, right = kafka.topic("left", 2), kafka.topic("right", 3)
    app = joined(kafka, unique("group"), left, right)
    with pytest.raises(TopicConfigurationError, match=rf"{left} has 2, {right} has 3.*; copy one of them"):
        app.run(timeout=1)
