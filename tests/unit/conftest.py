from collections.abc import Iterator

import httpx
import pytest

from streamrt.control import Client
from streamrt.kafka.cluster import topic_ids
from tests.unit.apps import Stage
from tests.unit.played import Played, played


@pytest.fixture(autouse=True)
def quick_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters in memory have no brokers that learn of a topic later than others."""
    monkeypatch.setattr(topic_ids, "PAUSE_S", 0.001)


@pytest.fixture
def undivided_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are sent at once share a time slice, also where a busy machine lets them wait for each other."""
    monkeypatch.setattr("streamrt.runtime.resident.loop._SLICE_S", 3_600.0)
    monkeypatch.setattr("streamrt.testing.driver.record_processing._SLICE_S", 3_600.0)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def app() -> Iterator[Played]:
    """An application that runs, with a control server."""
    with played() as started:
        yield started


@pytest.fixture
def client(app: Played) -> Iterator[Client]:
    """A client for it."""
    with Client(str(app.location)) as made:
        yield made


@pytest.fixture
def http(app: Played) -> Iterator[httpx.Client]:
    """Plain requests to it."""
    with httpx.Client(base_url=str(app.location), trust_env=False, verify=False) as made:
        yield made
