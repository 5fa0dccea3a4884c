"""Tables with a primary key on a real broker: compaction, tombstones, transactions, lookups, replicas and full changes."""

import contextlib
from pathlib import Path
from typing import Any

from streamrt.kafka import TopicConfig
from streamrt.records import TopicPartition
from streamrt.state import RocksDBStore
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.tables.rows.rows import ChangeType
from streamrt.tables.table import Table
from streamrt.topics import Topic
from tests.keyed_tables import CUSTOMERS, by_key, customer
from tests.support import Kafka, unique, wait_until
from tests.table_home import Home, info_of

COMPACTING = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "200",
    "delete.retention.ms": "3600000",
}


def customers_at(kafka: Kafka) -> Table:
    """Create a topic that is compacted soon, and return its table."""
    home, topic = Home(KafkaLinks(kafka.address)), unique("customers")
    home.links.admin().create_topics([Topic(topic, config=TopicConfig(2, 1, COMPACTING))])
    known: dict[str, Any] = {"name": "shop.customers", "kind": "primary-key", "key": CUSTOMERS.primary_key}
    return Table(info_of(topic, CUSTOMERS, num_partitions=2, **known), home)


def test_rows_by_key_through_compaction(kafka: Kafka, tmp_path: Path) -> None:
    customers = customers_at(kafka)
    with contextlib.closing(customers.home.resources):
        for step in range(3):
            customers.upsert([customer("FR", number, f"n{step}") for number in range(20)])
        token = customers.delete([("FR", number) for number in range(5)])
        with customers.writer(id=unique("aborted")) as writer:
            writer.upsert(customer("FR", 7, "aborted"))
            writer.upsert(customer("XX", 1, "aborted"))
            writer.close(failed=True)
        assert customers.get(("FR", 7), after=token) == customer("FR", 7, "n2")
        assert customers.get(("FR", 1), fresh=True) is None
        expected = {("FR", number): customer("FR", number, "n2") for number in range(5, 20)}
        assert by_key(customers.scan()) == expected
        rows, offsets = customers.snapshot()
        assert by_key(rows.to_pylist()) == expected
        with customers.replica(store=RocksDBStore, directory=tmp_path) as replica:
            assert by_key(replica.prefix("FR")) == expected
            assert replica.position == customers.offsets()

        customers.upsert([customer("FR", number, "x") for number in range(5, 15)])

        def is_compacted() -> bool:
            # A segment is closed by the first record after its time, and only closed ones are compacted.
            customers.upsert([customer("ZZ", number) for number in range(4)])
            return "n0" not in {row["name"] for row in customers.scan(["name"], changes=True).rows()}

        wait_until(is_compacted, 120)
        expected |= {("FR", number): customer("FR", number, "x") for number in range(5, 15)}
        expected |= {("ZZ", number): customer("ZZ", number) for number in range(4)}
        assert by_key(customers.scan()) == expected
        assert by_key(customers.prefix("FR", fresh=True) + customers.prefix("ZZ", fresh=True)) == expected
        with customers.replica(store=RocksDBStore, directory=tmp_path) as replica:
            replica.wait_for(customers.offsets())
            assert by_key(replica.scan()) == expected

        folded = by_key(rows.to_pylist())
        with customers.subscribe(start=offsets, changes="full") as stream:
            customers.delete([("FR", 19)])
            while not stream.position.covers(customers.offsets()):
                for record in stream.poll(1.0):
                    key = (record.row["country"], record.row["id"])
                    if record.change_type in (ChangeType.INSERT, ChangeType.UPDATE_AFTER):
                        folded[key] = record.row
                    else:
                        folded.pop(key, None)
        assert folded == by_key(customers.scan())
        partitions = [TopicPartition(str(customers.info.topic), number) for number in (0, 1)]
        ends = customers.home.links.admin().offset_bounds(partitions)
        assert {each: end for each, (_, end) in ends.items()} == dict(customers.offsets())
