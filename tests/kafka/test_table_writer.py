"""Writers of tables on Kafka: what brokers have, who is fenced, and what is left of a loader that is killed."""

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from streamrt.errors import DeliveryTimeoutError, ProducerError, StaleTokenError, TransactionError, WriterFencedError
from streamrt.kafka.partitioner import partition_for
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.tables.table import Table
from streamrt.tables.writing.writer import TableWriter
from tests.kafka.table_loader import PARTITIONS, POINTS, loaded
from tests.support import LONG, ROOT, Kafka, unique, wait_until
from tests.table_home import Home, Stored, committed, committed_records, create, table_info

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

EVENTS = "id INT, name STRING"


@pytest.fixture
def links(kafka: Kafka) -> Iterator[KafkaLinks]:
    with contextlib.closing(KafkaLinks(kafka.address, 60)) as links:
        yield links


def wait_for_markers(links: KafkaLinks, table: Table) -> None:
    """Wait until no transaction is open: brokers may answer a commit before readers see its rows."""
    admin = links.admin()
    places = [TopicPartition(str(table.info.topic), number) for number in range(table.info.num_partitions or 0)]
    wait_until(
        lambda: admin.offset_bounds(places, isolation_level="read_committed") == admin.offset_bounds(places),
        what="the ends of the transactions",
    )


def stored_in(links: KafkaLinks, table: Table) -> list[Stored]:
    """Return the committed rows of a table after all transactions."""
    wait_for_markers(links, table)
    return committed(links, table)


def ids_in(links: KafkaLinks, table: Table) -> list[int]:
    return sorted(stored.row["id"] for stored in stored_in(links, table))


def append_and_flush(writer: TableWriter) -> None:
    """Either of the two may notice first that another writer has the id."""
    writer.append({"id": 6})
    writer.flush(60)


@pytest.mark.rows("FL-070", "FL-074", "FL-078", "DK-024")
def test_rows_are_with_the_brokers_after_a_flush(kafka: Kafka, links: KafkaLinks) -> None:
    table = create(links, table_info(EVENTS, unique("shop.orders"), partitions=3, key=["name"]))
    # More rows than the buffer takes, so that append() waits.
    with table.writer(options={"linger.ms": 1, "queue.buffering.max.messages": 20}) as writer:
        results = [writer.append({"id": number, "name": f"n{number}"}) for number in range(100)]
        batch = writer.append_rows([{"id": 100, "name": "a"}])
        token = writer.flush(60)
        positions = [result.wait(0) for result in results]
        assert token.covers(batch.token)
    stored = stored_in(links, table)
    assert sorted(each.row["id"] for each in stored) == list(range(101))
    assert len({(at.partition, at.offset) for at in positions}) == 100
    counts = {number: sum(each.partition == number for each in stored) for number in range(3)}
    assert token.partition_map(table.name) == {number: count for number, count in counts.items() if count}
    assert token.ids == links.admin().topic_ids([table.name])
    # As other clients choose the partition.
    kafka.produce(table.name, [{"id": 200, "name": "n7"}], key=b'"n7"')
    assert len({each.partition for each in stored_in(links, table) if each.row["name"] == "n7"}) == 1


@pytest.mark.parametrize("schema", ["n BIGINT, at BIGINT", Schema("n BIGINT, at BIGINT", time="at")])
@pytest.mark.parametrize("writer_id", [None, "loader"])
def test_frames_keep_their_order_in_a_queue_that_is_full(
    links: KafkaLinks, schema: str | Schema, writer_id: str | None
) -> None:
    table = create(links, table_info(schema, unique("shop.orders"), partitions=3))
    options = {"assigner": "round-robin", "queue.buffering.max.messages": 500, "linger.ms": 1}
    with table.writer(options=options, id=writer_id) as writer:
        frame = pa.table({"n": range(4_000), "at": range(1, 4_001)})
        first = writer.append_arrow(frame)
        second = writer.append_rows([[4_000, 9]] * 30)
        token = writer.flush(60)
        assert second.wait(0).partition_map(table.name) == token.partition_map(table.name)
        assert first.done()
        if writer_id is not None:
            writer.checkpoint("1")
            writer.append_arrow(frame)
    stored = stored_in(links, table)
    assert token.partition_map(table.name) == {0: 1_344, 1: 1_343, 2: 1_343}
    for partition in range(3):
        numbers = [each.row["n"] for each in stored if each.partition == partition]
        assert numbers == [*range(partition, 4_000, 3), *[4_000] * (len(numbers) - len(range(partition, 4_000, 3)))]
    assert len(stored) == 4_030
    if isinstance(schema, Schema):
        assert all(each.timestamp == each.row["at"] for each in stored)


@pytest.mark.parametrize("writer_id", [None, "loader"])
def test_rows_go_to_partitions_that_are_added_later(
    kafka: Kafka, links: KafkaLinks, monkeypatch: pytest.MonkeyPatch, writer_id: str | None
) -> None:
    table = create(links, table_info(EVENTS, unique("shop.orders")))
    monkeypatch.setattr("streamrt.tables.writing.row_sender.REFRESH_S", 0.0)
    with table.writer(options={"assigner": "round-robin"}, id=writer_id) as writer:
        writer.append({"id": 1}).wait(300)
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_partitions([NewPartitions(table.name, 3)])[table.name].result(300)

        def reaches_all() -> bool:
            writer.append_rows([{"id": 2}] * 3)
            return len(writer.flush(60).partition_map(table.name)) == 3

        wait_until(reaches_all, what="rows in the new partitions")


def test_rows_that_brokers_refuse_are_told(links: KafkaLinks, kafka: Kafka) -> None:
    topic = kafka.topic("small", config={"max.message.bytes": "2000"})
    table = Table(table_info(EVENTS, topic=topic), Home(links))
    with table.writer() as writer:
        writer.append({"id": 1})
        assert writer.flush(60)
        large = writer.append({"id": 2, "name": "x" * 5_000})
        both = writer.append_rows([{"id": 2, "name": "y" * 5_000}] * 2)
        with pytest.raises(
            ProducerError, match=r"3 rows of table 'shop.orders' were not delivered .*: 1, 2, 3\): .*max.message.bytes"
        ):
            writer.flush(60)
        with pytest.raises(ProducerError, match=r"raise max.message.bytes of the topic"):
            both.wait(300)
        with pytest.raises(ProducerError, match=r"raise max.message.bytes of the topic"):
            large.wait(300)
        writer.append({"id": 3})
    assert ids_in(links, table) == [1, 3]
    with table.writer(id=unique("writer")) as second:
        second.append({"id": 4})
        second.append({"id": 5, "name": "x" * 5_000})
        with pytest.raises((ProducerError, TransactionError), match=r"max.message.bytes"):
            second.checkpoint("1")
        with pytest.raises((ProducerError, TransactionError), match=r"max.message.bytes"):
            second.append({"id": 6})
        assert second.state is None
    assert ids_in(links, table) == [1, 3]


def test_brokers_that_do_not_answer(links: KafkaLinks) -> None:
    table = create(links, table_info(EVENTS, unique("shop.orders")))
    writer = table.writer(options={"linger.ms": 200_000, "enable.idempotence": False})
    result = writer.append({"id": 1})
    with pytest.raises(DeliveryTimeoutError, match=r"1 row of table .* was not delivered within 0.01 s"):
        result.wait(0.01)
    writer.close(failed=True)
    with pytest.raises(ProducerError, match=r"was not delivered before its writer was closed"):
        result.wait()
    assert ids_in(links, table) == []


@pytest.mark.rows("DK-025", "DK-026", "DK-027")
def test_one_of_two_writers_with_an_id_is_fenced(links: KafkaLinks) -> None:
    table = create(links, table_info(EVENTS, unique("shop.orders"), partitions=2))
    idle, busy, second = table.writer(id="idle"), table.writer(id="busy"), table.writer(id="second")
    for writer in (idle, busy, second):
        writer.append({"id": 1})
        writer.checkpoint("1")
    busy.append({"id": 2}).wait(300)
    second.append({"id": 2})
    with table.writer(id="idle") as other:
        assert other.state == "1"
        late = idle.append({"id": 3})
        with pytest.raises(ProducerError, match=r"was not delivered"):
            late.wait(300)
        with pytest.raises(WriterFencedError, match=r"another writer 'idle' of table"):
            idle.checkpoint("2")
    with table.writer(id="busy") as other:
        with pytest.raises(WriterFencedError, match=r"another writer 'busy' of table"):
            busy.checkpoint("2")
        assert busy.state == "1"
        other.append({"id": 4})
        other.checkpoint("of the other")
    with table.writer(id="second") as other:
        other.append({"id": 5})
        with pytest.raises(WriterFencedError, match=r"another writer 'second' of table"):
            append_and_flush(second)
        other.checkpoint("of the other")
    for writer in (idle, busy, second):
        writer.close()
    assert ids_in(links, table) == [1, 1, 1, 4, 5]
    assert table.writer(id="busy").state == "of the other"


def test_transaction_that_is_open_too_long(links: KafkaLinks) -> None:
    table = create(links, table_info(EVENTS, unique("shop.orders")))
    options = {"transaction.timeout.ms": 1_000}
    with table.writer(id="slow", options=options) as writer:
        writer.append({"id": 1})
        writer.checkpoint("1")
        writer.append({"id": 2}).wait(300)
        wait_for_markers(links, table)
        with pytest.raises(TransactionError, match=r"transaction.timeout.ms=1000: checkpoint more often") as error:
            writer.checkpoint("2")
        assert not isinstance(error.value, WriterFencedError)
    with table.writer(id="slow") as writer:
        assert writer.state == "1"
    assert ids_in(links, table) == [1]


def test_topic_that_is_created_again_under_writers(links: KafkaLinks, kafka: Kafka) -> None:
    table = create(links, table_info(EVENTS, unique("shop.again")))
    loader, plain = table.writer(id="loader"), table.writer()
    loader.append({"id": 1})
    loader.checkpoint("1")
    plain.append({"id": 2})
    plain.flush(60)
    kafka.admin.delete_topics([table.name])
    wait_until(lambda: kafka.admin.inspect_topics([table.name])[table.name] is None)
    again = create(links, table.info)
    for writer in (loader, plain):
        # Its client writes to the new topic, and does not say so.
        writer.append({"id": 3})
    with pytest.raises(StaleTokenError, match=r"created again while a writer was open; its transaction is aborted"):
        loader.checkpoint("2")
    with pytest.raises(StaleTokenError, match=r"created again while a writer was open; rows from before are gone"):
        plain.flush(60)
    for writer in (loader, plain):
        writer.close()
    with again.writer(id="loader") as writer:
        assert writer.state is None
        writer.append_rows([{"id": 1}, {"id": 3}])
        writer.checkpoint("2")
    # The writer without an id has told that its row is there.
    assert ids_in(links, again) == [1, 3, 3]


def test_loader_that_is_killed_loses_and_repeats_nothing(links: KafkaLinks, kafka: Kafka) -> None:
    topic = kafka.topic("numbers", PARTITIONS)
    table = loaded(kafka.address, topic)
    seed = random.randrange(10**6)
    chosen = random.Random(seed)
    rounds = [*POINTS * 5, *("any",) * 20] if LONG else [*POINTS, "any"]
    command = [sys.executable, "-W", "ignore", "-m", "tests.kafka.table_loader", kafka.address, topic]
    states = [0]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loader:
        assert loader.stdin is not None
        assert loader.stdout is not None
        for number, point in enumerate(rounds):
            about = f"round {number}, {point}, of seed {seed}"
            loader.stdin.write(f"{point} {chosen.randint(1, 4)} {seed + number}\n")
            loader.stdin.flush()
            assert loader.stdout.readline() == "9\n", about
            # Takes the id, so that what was open is aborted.
            with table.writer(id="loader") as writer:
                states.append(int(writer.state or 0))
            assert sorted(stored.row["n"] for stored in stored_in(links, table)) == list(range(states[-1])), about
            assert states[-1] >= states[-2], about
        loader.stdin.close()
    assert states[-1] > 0


@pytest.mark.rows("FL-075", "FL-076", "FL-077", "FL-171")
def test_upserts_and_deletes_as_other_clients_see_them(kafka: Kafka) -> None:
    name = f"default.{unique('people')}".replace("-", "_")
    with Catalog(kafka.address, store=MemoryCatalog(), timeout=60) as catalog:
        people = catalog.create_table(
            name, "id BIGINT, country STRING, name STRING, PRIMARY KEY (country, id)", num_partitions=3
        )
        settings = kafka.admin.inspect_topics([name])[name]
        assert settings is not None
        assert settings.extra_config["cleanup.policy"] == "compact"
        with people.writer() as writer:
            first = writer.upsert({"id": 1, "country": "FR", "name": "Ann"})
            writer.upsert_rows([[number, "DE", None] for number in range(20)])
            writer.delete_rows([("DE", number) for number in range(1, 20)])
            gone = writer.delete({"country": "FR", "id": 1})
            token = writer.flush(60)
            assert gone.wait(0).partition == first.wait(0).partition
            assert token.covers(gone.token)
        with people.writer(id="loader") as writer:
            writer.write([{"insert": [2, "FR", "Bob"]}, {"delete": ("DE", 0)}])
            writer.checkpoint("1")
            writer.upsert([3, "FR", "dropped"])
            writer.write([{"delete": ("FR", 2)}])
        assert people.writer(id="loader").state == "1"
        # Another client upserts and deletes as well: its partitioner finds the same partitions.
        kafka.produce(name, [{"id": 2, "country": "FR", "name": "Cy"}], key=b'["FR",2]')
        records = committed_records(catalog.links, people)
        assert len(records) == 44
        assert {partition for partition, key, *_ in records if key == b'["FR",2]'} == {partition_for(b'["FR",2]', 3)}
        last = {key: value and json.loads(value) for _, key, value, _ in records}
        assert {key: value for key, value in last.items() if value} == {
            b'["FR",2]': {"id": 2, "country": "FR", "name": "Cy"}
        }
        assert list(people.scan().rows()) == [{"id": 2, "country": "FR", "name": "Cy"}]
