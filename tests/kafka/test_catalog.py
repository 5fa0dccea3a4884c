"""The catalogue over a broker."""

import contextlib
import logging
from collections.abc import Iterator

import pytest

from streamrt import Catalog, ConnectionConfig
from streamrt.errors import KafkaBrokerUnavailableError, TopicConfigurationError
from streamrt.tables import CatalogStore, KafkaCatalog
from streamrt.tables.kafka_links import KafkaLinks
from streamrt.testing.catalogs import CatalogStoreConformance
from tests.support import Kafka, unique


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


@pytest.mark.rows("FL-022", "FL-035", "FL-036", "FL-046", "FL-047", "DK-096")
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
