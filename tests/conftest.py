from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamrt.testing.plugin import KafkaBroker
from tests.support import Kafka, Program


@pytest.fixture
def kafka(kafka_broker: KafkaBroker, tmp_path: Path) -> Kafka:
    """The broker of the test run, with a state directory of this test's own."""
    return Kafka(kafka_broker.bootstrap_servers, tmp_path / "state")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """A function that starts a Python program; what still runs at the end is killed."""
    programs: list[Program] = []

    def start(source: str, **environment: str) -> Program:
        programs.append(Program(source, tmp_path / f"program_{len(programs)}.py", environment))
        return programs[-1]

    yield start
    for started in programs:
        started.kill()
