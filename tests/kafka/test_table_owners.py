"""Maintained tables on a real broker: one group merges, another one takes over, and rows are never taken for missing."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import InvalidOperationError, StreamRTError, TopicConfigurationError
from streamrt.kafka import KafkaRequestError, TopicAdmin, TopicConfig
from streamrt.records import TopicPartition
from streamrt.tables import Catalog, Table
from streamrt.topics import Topic
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SCHEMA = "id BIGINT, name STRING, points BIGINT, PRIMARY KEY (id)"


@pytest.fixture
def catalog(kafka: Kafka) -> Iterator[Catalog]:
    with Catalog(kafka.address) as opened:
        yield opened


def app_of(kafka: Kafka, table: Table, group: str) -> Application:
    app = Application(
        kafka.address,
        consumer_group=group,
        state_dir=kafka.state_dir / unique("state"),
        processing_guarantee="exactly-once",
        processing_mode="resident",
        spark_master="processes[2]",
        commit_interval=0.2,
    )
    app.maintain(table)
    return app


@contextmanager
def running(app: Application) -> Iterator[None]:
    app.start()
    try:
        yield
    finally:
        app.stop(wait=True)


def create_topic(kafka: Kafka, topic: Topic) -> bool:
    with suppress(KafkaRequestError):
        kafka.admin.create_topics([topic])
        return True
    return False


def run_until_refused(app: Application, refusals: list[str]) -> None:
    with pytest.raises(StreamRTError, match="was deleted and created again") as refused:
        app.run()
    refusals.append(str(refused.value))


def rows_of(table: Table, token: Any) -> dict[int, tuple[Any, Any]]:
    # A lookup waits for the partition of its key, and these are in all of them.
    table.get_many(list(range(20)), after=token, timeout=120)
    return {row["id"]: (row["name"], row["points"]) for row in table.scan().to_arrow().to_pylist()}


def test_rows_are_there_for_each_group_that_maintains_the_table(kafka: Kafka, catalog: Catalog) -> None:
    name = unique("people").replace("-", "_")
    direct = catalog.create_table(name, SCHEMA, num_partitions=2)
    direct.upsert([{"id": number, "name": f"name {number}", "points": number} for number in range(20)])
    direct.delete([3])
    catalog.drop_table(name)
    table = catalog.create_table(name, SCHEMA, num_partitions=2, maintained=True)
    expected: dict[int, tuple[Any, Any]] = {number: (f"name {number}", number) for number in range(20) if number != 3}
    points = table.writer(columns=["id", "points"])
    first, second = app_of(kafka, table, unique("first")), app_of(kafka, table, unique("second"))
    with points, running(first):
        points.upsert({"id": 1, "points": 100})
        points.upsert({"id": 3, "points": 300})
        token = points.flush()
        expected |= {1: ("name 1", 100), 3: (None, 300)}
        assert rows_of(table, token) == expected
        with pytest.raises(InvalidOperationError, match=r"is maintained by consumer group 'first-.*table release"):
            second.run()
        with pytest.raises(InvalidOperationError, match="has members"):
            catalog.release_table(name)
    # Requests that wait belong to the next owner.
    with table.writer(columns=["id", "points"]) as waiting:
        waiting.upsert({"id": 2, "points": 200})
        token = waiting.flush()
    assert catalog.release_table(name) == first.config.consumer_group
    with running(second):
        expected |= {2: ("name 2", 200)}
        assert rows_of(table, token) == expected
    with pytest.raises(TopicConfigurationError, match="rows of a maintained table stay in their partitions"):
        second.repartition(4, dry_run=True)
    # The maintainer would be left with fewer partitions than its table.
    reader = Application(kafka.address, consumer_group=unique("reader"))
    reader.table(table).to_stream().to_topic(reader.topic(unique("out")))
    with pytest.raises(TopicConfigurationError, match=f"reads topic '{table.info.topic}' of the maintained table"):
        reader.repartition(4, dry_run=True)
    with pytest.raises(TopicConfigurationError, match=f"reads topic '{table.info.topic}' of the maintained table"):
        reader.repartition(4)
    assert len(kafka.admin.partition_replicas(str(table.info.topic))) == 2
    # A reset gives up the state, and neither rows nor requests.
    second.reset()
    with table.writer(columns=["id", "points"]) as again, running(second):
        again.upsert({"id": 1, "points": 111})
        again.upsert({"id": 5, "points": 555})
        expected |= {1: ("name 1", 111), 5: ("name 5", 555)}
        assert rows_of(table, again.flush()) == expected
    partitions = [TopicPartition(f"{table.info.topic}.requests", number) for number in range(2)]
    committed = TopicAdmin(kafka.address).committed(second.config.consumer_group, partitions)
    assert all(offset is not None for offset in committed.values())
    # The rows are not in a new topic of this name.
    refusals: list[str] = []
    thread = threading.Thread(target=run_until_refused, args=(second, refusals))
    thread.start()
    with table.writer(columns=["id", "points"]) as last:
        last.upsert({"id": 1, "points": 1})
        table.get(1, after=last.flush(), timeout=120)
    topic = table.topic.with_config(TopicConfig(2, 1))
    kafka.admin.delete_topics([topic.name])
    wait_until(lambda: create_topic(kafka, topic), what="the new topic")
    thread.join(120)
    run_until_refused(second, refusals)
    assert len(refusals) == 2


def test_an_application_that_writes_past_the_rules_is_warned(
    kafka: Kafka, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    name = unique("past")
    table = catalog.create_table(name, SCHEMA, maintained=True)
    app = Application(kafka.address, consumer_group=unique("past"))
    app.dataframe(app.topic(unique("in"))).to_topic(app.topic(str(table.info.topic)))
    with app._tables.noting_usage():
        pass
    assert f"past the rules of the maintained table '{table.name}'" in capsys.readouterr().err
