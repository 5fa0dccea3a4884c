from collections.abc import Iterator

import httpx
import pytest

from streamrt.control import Client
from tests.unit.apps import Stage
from tests.unit.played import Played, played


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
    with httpx.Client(base_url=str(app.location), trust_env=False) as made:
        yield made
