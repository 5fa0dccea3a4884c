"""The catalogue over a broker."""

import contextlib
import gc
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.schema_registry import ConfigCompatibilityLevel, ServerConfig

from streamrt import Catalog, ConnectionConfig
from streamrt.errors import CatalogError, KafkaBrokerUnavailableError, SchemaEvolutionError, TopicConfigurationError
from streamrt.serializers.registry import SchemaRegistryClientConfig, open_registry
from streamrt.tables import CatalogStore, KafkaCatalog, MemoryCatalog
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.tables.catalogue.kafka_catalog import CATALOG_TOPIC
from streamrt.testing.catalogs import CatalogStoreConformance
from streamrt.testing.kafka import EmbeddedKafka
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.testing.registry import EmbeddedSchemaRegistry
from tests.support import LONG, ROOT, Kafka, unique


class TestKafkaCatalog(CatalogStoreConformance):
    """A catalogue in a topic of Kafka."""

    writers = 2
    changes = 2

    @pytest.fixture(autouse=True)
    def cluster(self, kafka: Kafka) -> Iterator[None]:
        self.topic = unique("catalog")
        with contextlib.ExitStack() as self.opened:
            self.links = self.opened.enter_context(contextlib.closing(KafkaLinks(kafka.address)))
            yield

    def make(self) -> CatalogStore:
        store = self.opened.enter_context(contextlib.closing(KafkaCatalog(self.topic)))
        store.connect(self.links, 60.0)
        return store


@pytest.mark.rows("FL-022", "FL-035", "FL-036", "FL-046", "FL-047", "DK-011", "DK-096")
def test_tables_have_topics(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    topic, database = unique("catalog"), unique("shop")
    with Catalog(ConnectionConfig(bootstrap_servers=kafka.address), store=KafkaCatalog(topic), connect=True) as catalog:
        assert [broker.port for broker in catalog.brokers()] == [int(kafka.address.rpartition(":")[2])]
        assert catalog.tables() == []
        catalog.create_database(database)
        table = catalog.create_table(
            f"{database}.orders", "id BIGINT, at TIMESTAMP", num_partitions=3, config={"retention.ms": "60000"}
        )
        found = kafka.admin.inspect_topics([f"{database}.orders"])[f"{database}.orders"]
        assert found is not None
        assert (found.num_partitions, found.extra_config["retention.ms"]) == (3, "60000")
        assert table.topic.name == f"{database}.orders"

        catalog.alter_table(f"{database}.orders", config={"retention.ms": "120000"})
        changed = kafka.admin.inspect_topics([f"{database}.orders"])[f"{database}.orders"]
        assert changed is not None
        assert changed.extra_config["retention.ms"] == "120000"

        # Partitions that are added later count.
        kafka.admin.add_partitions(f"{database}.orders", 4)
        assert table.refresh().num_partitions == 4

        # A topic that others have made, with a partitioner of theirs.
        adopted = kafka.topic("foreign", partitions=2)
        for number in range(20):
            kafka.produce(adopted, [{"id": number}], key=b"same", partition=number % 2)
        with caplog.at_level(logging.WARNING, "streamrt.tables"):
            catalog.create_table(f"{database}.foreign", "id BIGINT", topic=adopted, key=["id"], num_partitions=1)
        assert "num_partitions declared 1, actual 2" in caplog.text
        assert f"10 of 20 records of topic {adopted} lie in other partitions" in caplog.text
        with pytest.raises(TopicConfigurationError, match="would lose rows of the primary-key table"):
            catalog.create_table(f"{database}.upserts", "id BIGINT, PRIMARY KEY (id)", topic=adopted)

        with Catalog(kafka.address, store=KafkaCatalog(topic)) as other:
            assert other.tables(database) == [f"{database}.foreign", f"{database}.orders"]
            catalog.drop_table(f"{database}.orders", delete_data=True)
            catalog.drop_table(f"{database}.foreign")
            assert other.tables(database) == []
        assert kafka.admin.inspect_topics([f"{database}.orders", adopted])[f"{database}.orders"] is None
        assert kafka.admin.inspect_topics([adopted])[adopted] is not None


@pytest.mark.rows("FL-022")
def test_a_broker_that_does_not_answer_is_named_at_once() -> None:
    with pytest.raises(KafkaBrokerUnavailableError):
        Catalog("localhost:1", connect=True, timeout=0.3)


@pytest.mark.skipif(not LONG, reason="set STREAMRT_LONG_TESTS=1")
def test_programs_that_are_killed_lose_and_repeat_no_change(kafka: Kafka, tmp_path: Path) -> None:
    topic, programs, changes, kills = unique("catalog"), 3, 12, 6
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    logs = [tmp_path / str(number) for number in range(programs)]

    def start(number: int) -> "subprocess.Popen[bytes]":
        program = Path(__file__).with_name("catalog_writer.py")
        left = changes - len(noted(logs[number]))
        command = [sys.executable, str(program), kafka.address, topic, str(logs[number]), str(left)]
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})

    running = [start(number) for number in range(programs)]
    for _ in range(kills):
        time.sleep(chance.uniform(0.5, 3.0))
        victim = chance.randrange(programs)
        running[victim].kill()
        running[victim].wait()
        running[victim] = start(victim)
    assert [each.wait(300) for each in running] == [0] * programs, f"seed {seed}"
    with contextlib.closing(KafkaLinks(kafka.address)) as links, contextlib.closing(KafkaCatalog(topic)) as store:
        store.connect(links, 60.0)
        stored = store.get("table/shop.number")
    assert stored is not None
    numbers = [number for log in logs for number in noted(log)]
    # Each number was written by one program; one that was killed may have written one that it did not note.
    assert len(numbers) == len(set(numbers)), f"seed {seed}"
    assert len(numbers) <= json.loads(stored.value)["n"] <= len(numbers) + kills, f"seed {seed}"


@pytest.mark.slow
def test_rights_decide_what_is_seen_and_nothing_unseen_is_overwritten(strict_kafka: EmbeddedKafka) -> None:
    rights = {
        "nobody": (),
        "describer": (AclOperation.DESCRIBE,),
        "reader": (AclOperation.DESCRIBE, AclOperation.READ),
        "writer": (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE),
        "blind": (AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.CREATE),
    }
    changes = {
        "nobody": "grant READ and DESCRIBE",
        "describer": "grant the user WRITE and DESCRIBE on the transactional id",
        "reader": "grant the user WRITE and DESCRIBE on the transactional id",
        "blind": "objects would be overwritten unseen",
    }
    bindings = [(user, ResourceType.TOPIC, CATALOG_TOPIC, right) for user in rights for right in rights[user]]
    for user in ("writer", "blind"):
        for right in (AclOperation.DESCRIBE, AclOperation.WRITE):
            bindings.append((user, ResourceType.TRANSACTIONAL_ID, "streamrt.catalog", right))
    clients = count_clients()
    admin = AdminClient({"bootstrap.servers": strict_kafka.bootstrap_servers})
    granted = admin.create_acls(
        [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", right, AclPermissionType.ALLOW)
            for user, kind, name, right in bindings
        ]
    )
    for future in granted.values():
        future.result(300)
    with Catalog(strict_kafka.bootstrap_servers) as catalog:
        catalog.create_database("shop", comment="what we sell")
    for user in rights:
        connection = ConnectionConfig(
            bootstrap_servers=strict_kafka.address("SASL_PLAINTEXT"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username=user,
            sasl_password="canary",
        )
        with Catalog(connection) as catalog:
            assert ("shop" in catalog.databases()) == (user in ("reader", "writer"))
            if user == "writer":
                catalog.create_database("new")
                continue
            with pytest.raises(CatalogError, match=changes[user]):
                catalog.record_usage("app", reads=["shop.orders"])
    with Catalog(strict_kafka.bootstrap_servers) as catalog:
        assert catalog.databases() == ["default", "new", "shop"]
        assert catalog.applications() == []
    # Those that were refused included, which would try to reach the broker as long as the process lives.
    assert count_clients() == clients


def count_clients() -> int:
    gc.collect()
    return sum(type(each) is Producer for each in gc.get_objects())


def noted(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


@pytest.mark.rows("DK-097")
def test_the_registry_decides_whether_a_schema_may_change(schema_registry: EmbeddedSchemaRegistry) -> None:
    registry = SchemaRegistryClientConfig(url=schema_registry.url)
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks(), schema_registry=registry)
    table = catalog.create_table(unique("orders"), "id INT", format="avro")
    # Nothing is registered yet, so everything may come first.
    catalog.alter_table(table.name, add="name STRING")
    table.refresh()
    table.append([{"id": 1, "name": "ann"}])
    # Programs that have not been upgraded shall also read new rows.
    level = ServerConfig(compatibility=ConfigCompatibilityLevel.FULL)
    open_registry(registry).client.set_config(f"{table.info.topic}-value", level)
    for force in (False, True):
        with pytest.raises(SchemaEvolutionError, match=r"the schema registry would refuse .*compatibility level"):
            catalog.alter_table(table.name, widen={"id": "BIGINT"}, force=force)
    catalog.alter_table(table.name, add="voucher STRING")
    table.refresh()
    table.append([{"id": 2, "voucher": "spring"}])
    assert [row["voucher"] for row in table.scan().rows()] == [None, "spring"]


def test_the_registry_decides_for_protobuf_too(schema_registry: EmbeddedSchemaRegistry) -> None:
    registry = SchemaRegistryClientConfig(url=schema_registry.url)
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks(), schema_registry=registry)
    table = catalog.create_table(unique("orders"), "id INT, at TIMESTAMP_LTZ", format="protobuf")
    subject = f"{table.info.topic}-value"
    # Nothing is registered yet, so everything may come first; a question registers nothing.
    catalog.alter_table(table.name, add="name STRING")
    assert subject not in open_registry(registry).client.get_subjects()
    table.refresh()
    table.append([{"id": 1, "at": "2026-01-31T00:00:00Z", "name": "ann"}])
    open_registry(registry).client.set_config(
        subject, ServerConfig(compatibility=ConfigCompatibilityLevel.BACKWARD_TRANSITIVE)
    )
    with pytest.raises(SchemaEvolutionError, match=r"the schema registry would refuse .*compatibility level"):
        catalog.alter_table(table.name, schema="id STRING, at TIMESTAMP_LTZ, name STRING", force=True)
    catalog.alter_table(table.name, add="voucher STRING", widen={"id": "BIGINT"})
    table.refresh()
    table.append([{"id": 2, "voucher": "spring"}])
    assert [(row["name"], row["voucher"]) for row in table.scan().rows()] == [("ann", None), (None, "spring")]
