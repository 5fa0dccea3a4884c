"""Tables over Kafka keep the contract of tables."""

import pytest

from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.testing.links import TableConformance
from tests.support import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


class TestKafkaLinks(TableConformance):
    """Links over Kafka do what links in memory do."""

    @pytest.fixture(autouse=True)
    def cluster(self, kafka: Kafka) -> None:
        self.address = kafka.address

    def make(self) -> KafkaLinks:
        return KafkaLinks(self.address, 60.0)
