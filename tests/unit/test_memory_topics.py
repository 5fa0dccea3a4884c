"""Topics in memory: the double of Kafka for tables."""

import pytest

from streamrt.testing.memory_topics import MemoryLinks
from tests.links_cases import LinksCases
from tests.support import unique


class TestMemoryLinks(LinksCases):
    """Links in memory do what Kafka does."""

    @pytest.fixture
    def links(self) -> MemoryLinks:
        return MemoryLinks()

    @pytest.fixture
    def topic_name(self) -> str:
        return unique("topic")
