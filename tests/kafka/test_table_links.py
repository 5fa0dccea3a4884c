"""Links of tables over Kafka."""

import contextlib
from collections.abc import Iterator

import pytest

from streamrt.tables.kafka_links import KafkaLinks
from tests.links_cases import LinksCases
from tests.support import Kafka, unique


class TestKafkaLinks(LinksCases):
    """Links over Kafka do what links in memory do."""

    @pytest.fixture
    def links(self, kafka: Kafka) -> Iterator[KafkaLinks]:
        with contextlib.closing(KafkaLinks(kafka.address)) as links:
            yield links

    @pytest.fixture
    def topic_name(self) -> str:
        return unique("topic")
