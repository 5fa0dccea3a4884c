"""Event time on Kafka and Spark: what deployments, backlogs and pauses do to it makes no record late."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamrt.connectors import BatchingSink, SinkBatch
from streamrt.errors import SinkBackpressureError
from streamrt.kafka import ConnectionConfig, Producer
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.models import TopicPartition
from tests.support import Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]

CLOSING: dict[str, Any] = {"closing_strategy": "watermark", "idle_timeout_ms": 2_000}


def produce(kafka: Kafka, topic: str, partition: int, timestamps: Iterable[int], keys: int = 1) -> None:
    """Produce a record for each timestamp, which is above 0 (that is "now" to Kafka); its value tells its key."""
    with Producer(kafka.address, extra_config={"enable.idempotence": False}) as producer:
        for number, timestamp in enumerate(timestamps):
            key = f"{partition}-{number % keys}"
            value = json.dumps({"k": key}).encode()
            producer.produce(topic, value, key.encode(), partition=partition, timestamp=timestamp)


def windows(kafka: Kafka, topic: str) -> dict[tuple[bytes | None, int], int]:
    """Return the windows that were emitted, by key and start, with their records; at least once, one may come twice."""
    rows = [(record.key, json.loads(record.value or b"")) for record in kafka.receive(topic, kafka.end(topic), 10)]
    return {(key, row["start"]): row["value"] for key, row in rows}


def counted(kafka: Kafka, topic: str) -> int:
    """Return how many records are in the windows that were emitted."""
    return sum(windows(kafka, topic).values())


@pytest.mark.both_modes
def test_fault_0_a_backlog_behind_a_grouping_is_counted_whole(kafka: Kafka) -> None:
    """One partition spans hours and the other one seconds; behind `group_by` they are mixed."""
    source, target, count = kafka.topic("in", 2), kafka.topic("out"), 1_500
    produce(kafka, source, 0, range(1_000, count * 1_000 + 1_000, 1_000), keys=10)
    produce(kafka, source, 1, range(1_000, count + 1_000, 1), keys=10)
    app = kafka.app(commit_every=200)
    sdf = app.dataframe(app.topic(source)).group_by("k", value_deserializer="json", key_deserializer="str")
    sdf.tumbling_window(1_000).count().final(**CLOSING).to_topic(app.topic(target))
    with running(app):
        wait_until(lambda: kafka.end(target) > 0 and counted(kafka, target) >= 2 * count, what="all windows")
    assert counted(kafka, target) == 2 * count


@pytest.mark.only_mode(
    "micro-batch", reason="the other instance needs a partition, and resident tasks are several members"
)
def test_fault_1_a_partition_that_comes_from_another_instance_loses_nothing(kafka: Kafka) -> None:
    """The instance that takes it over is an hour ahead."""
    source, target, group = kafka.topic("in", 2), kafka.topic("out"), unique("moved")
    app = kafka.app(group)
    sdf = app.dataframe(app.topic(source)).tumbling_window(1_000).count().final(**CLOSING)
    sdf.to_topic(app.topic(target))
    # Another instance, which does nothing with its partition.
    other = GroupMember(ConnectionConfig(bootstrap_servers=kafka.address), group, [source], on_revoke=lambda _: None)
    other.start()
    try:
        wait_until(lambda: bool(other.current_assignment(0.1)), what="the other instance")
        with running(app):

            def lagging() -> set[TopicPartition]:
                current = other.current_assignment(0.1)
                return set() if current is None or len(current.partitions) != 1 else set(current.partitions)

            wait_until(lambda: bool(lagging()), what="the rebalance")
            ((_, behind),) = lagging()
            produce(kafka, source, 1 - behind, range(10_000_000, 10_100_000, 1_000))
            produce(kafka, source, behind, range(1_000, 301_000, 1_000))
            wait_until(lambda: kafka.end(target) >= 99, what="the windows of the quick one")
            other.close()
            wait_until(lambda: kafka.end(target) >= 400, what="the windows of the other one")
        assert counted(kafka, target) == 400
    finally:
        other.close()


class Reluctant(BatchingSink):
    """Puts the batches of a partition off until a file is there."""

    def __init__(self, partition: int, open_file: Path, pause_s: float) -> None:
        super().__init__()
        self._partition = partition
        self._open_file = open_file
        self._pause_s = pause_s

    def write(self, batch: SinkBatch) -> None:
        if batch.partition == self._partition and not self._open_file.exists():
            self._open_file.with_suffix(".asked").touch()
            raise SinkBackpressureError(retry_after=self._pause_s)


@pytest.mark.parametrize("pause_s", [0.5, 0.03], ids=["", "a22-shorter-than-the-start-of-a-query"])
def test_fault_2_a_partition_that_a_sink_has_paused_is_not_ticked(kafka: Kafka, tmp_path: Path, pause_s: float) -> None:
    source, target, go_on = kafka.topic("in", 2), kafka.topic("out"), tmp_path / "go_on"
    app = kafka.app()
    sdf = app.dataframe(app.topic(source))
    sdf.filter(lambda value: value["k"] != "1-0").sink(Reluctant(0, go_on, pause_s))
    sdf.tumbling_window(1_000).count().final(**CLOSING).to_topic(app.topic(target))
    produce(kafka, source, 0, [100, 5_100])
    produce(kafka, source, 1, range(100, 8_000, 1_000))
    with running(app):
        wait_until(go_on.with_suffix(".asked").exists, what="the pause")
        # Its deadlines are long past for the other one.
        produce(kafka, source, 1, range(100_000, 120_000, 1_000))
        wait_until(lambda: app.progress().records >= 28, what="the other partition")
        go_on.touch()
        found = partial(windows, kafka, target)
        wait_until(lambda: sum(found().values()) == 30, what="all windows", found=found)


@contextmanager
def feeding(work: Callable[[int], None]) -> Iterator[None]:
    """Call a function again and again, with the number of the call, until the end of the block."""
    over = threading.Event()

    def run() -> None:
        number = 0
        while not over.wait(0.005):
            work(number)
            number += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.both_modes
def test_fault_3_a_quiet_partition_holds_nothing_up_while_others_are_busy(kafka: Kafka) -> None:
    source, target = kafka.topic("in", 4), kafka.topic("out")
    app = kafka.app()
    sdf = app.dataframe(app.topic(source)).tumbling_window(1_000).count().final(**CLOSING)
    sdf.to_topic(app.topic(target))
    with Producer(kafka.address, extra_config={"enable.idempotence": False}) as producer:

        def feed(number: int) -> None:
            for partition in (0, 1, 2):
                producer.produce(source, b"{}", b"key", partition=partition, timestamp=10 * number + 1)

        with running(app), feeding(feed):
            wait_until(lambda: kafka.end(target) >= 30, what="windows, while records come")
