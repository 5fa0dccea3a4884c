"""The examples of tables on a real broker, as programs too, and clients of Kafka for the topic of a table."""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from streamrt import Offsets
from streamrt.tables import Catalog
from tests.example_programs import load
from tests.support import ROOT, Kafka
from tests.unit.test_example_tables import COMPLETED, DETECTED, FOLLOWED, KEYED, MAINTAINED, SCORES

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def catalog(kafka: Kafka) -> Iterator[Catalog]:
    with Catalog(kafka.address) as catalog:
        yield catalog


def run_program(name: str, address: str) -> dict[str, Any]:
    """Run an example as users do, and return what it printed."""
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py"],
        cwd=ROOT,
        env={**os.environ, "STREAMRT_BROKER_ADDRESS": address},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (line.partition(": ") for line in done.stdout.splitlines())
    return {what: ast.literal_eval(found) for what, _, found in lines}


def taken(found: dict[str, Any], topic: str) -> dict[int, int]:
    """Take the position out of what an example found, and return its offsets."""
    return dict(Offsets.parse(found.pop("position")).partition_map(topic))


@pytest.mark.rows("DK-012", "DK-013")
def test_log_and_clients_of_kafka(kafka: Kafka, catalog: Catalog) -> None:
    found = load("tables_log").run(catalog)
    assert taken(found, "demo.events") == {0: 2}
    assert found == SCORES
    table = catalog.table("demo.events")
    with table.producer(linger_ms=1) as producer:
        producer.produce(table.topic.name, b'{"id":4}')
    with table.consumer("readers") as consumer:
        values: list[bytes | None] = []
        while len(values) < 4:
            message = consumer.poll(10.0)
            assert message is not None
            values.append(message.value())
    assert values[3] == b'{"id":4}'
    assert table.scan(["id"], start={0: 3}).to_arrow().to_pylist() == [{"id": 4}]
    catalog.drop_table("demo.events", delete_data=True)


def test_log_as_a_program_that_runs_again(kafka: Kafka, catalog: Catalog) -> None:
    for _ in range(2):
        found = run_program("tables_log", kafka.address)
        assert taken(found, "demo.events") == {0: 2}
        assert found == SCORES
        assert "demo.events" not in catalog


def test_keyed_as_a_program(kafka: Kafka) -> None:
    assert run_program("tables_keyed", kafka.address) == KEYED


def test_maintained_as_a_program(kafka: Kafka) -> None:
    assert run_program("tables_maintained", kafka.address) == MAINTAINED


def test_lookup_as_a_program(kafka: Kafka) -> None:
    assert run_program("tables_lookup", kafka.address) == COMPLETED


@pytest.mark.rows("DK-018", "DK-025", "DK-026")
def test_endpoints_as_a_program_whose_copier_is_killed(kafka: Kafka) -> None:
    found = run_program("endpoints", kafka.address)
    assert taken(found, "geo.counts") == {0: 2}
    assert {**found, "position": None} == {
        **DETECTED,
        **FOLLOWED,
        "ended by": signal.SIGKILL.value,
        "after the end": (["1", "2"], "2"),
        "after another run": (["1", "2", "3"], "3"),
    }
