"""Fixtures for pytest, available in every test suite of an environment with StreamRT.

pytest imports this module on every start, so it imports nothing heavy: fixtures import what they need inside their
functions.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from streamrt.app import Application
    from streamrt.testing.driver import TopologyTestDriver

__all__ = ["ExternalKafka", "KafkaBroker", "kafka_broker", "topology_driver"]


class KafkaBroker(Protocol):
    """The interface of the broker that a test gets."""

    @property
    def bootstrap_servers(self) -> str:
        """Address for `bootstrap.servers`."""


@dataclass(frozen=True)
class ExternalKafka:
    """A broker that was not started by the test run.

    Args:
        bootstrap_servers: address for `bootstrap.servers`.

    Example:
        >>> ExternalKafka("localhost:9092").bootstrap_servers
        'localhost:9092'
    """

    bootstrap_servers: str


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """A Kafka broker for the whole test run, started when the first test requests it.

    It is a `streamrt.testing.kafka.EmbeddedKafka`, unless the environment variable `STREAMRT_TEST_BROKER` contains
    the address of another broker. Topics live as long as the broker, so give them unique names.
    """
    address = os.environ.get("STREAMRT_TEST_BROKER")
    if address:
        yield ExternalKafka(address)
        return
    from streamrt.testing.kafka import EmbeddedKafka

    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture
def topology_driver() -> "Iterator[Callable[[Application], TopologyTestDriver]]":
    """A function that makes a `streamrt.testing.TopologyTestDriver` for an application.

    Example:
        ```python
        def test_late_flights(topology_driver):
            driver = topology_driver(app)
            driver.pipe("flights", {"dep_delay": 90})
            assert [record.value["dep_delay"] for record in driver.read("late-flights")] == [90]
        ```
    """
    from streamrt.testing.driver import TopologyTestDriver

    drivers: list[TopologyTestDriver] = []

    def make(app: "Application") -> "TopologyTestDriver":
        drivers.append(TopologyTestDriver(app))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()
