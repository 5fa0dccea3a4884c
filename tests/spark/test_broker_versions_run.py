"""Applications with brokers of other versions than the embedded one: `tests/kafka/test_broker_versions.py` has the rest.

Ordinary runs take the oldest version in one mode, and `make test-long` all of `tests.kafka_versions` in both.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamrt import State
from tests.kafka_versions import OLDEST, OTHERS, broker_of
from tests.support import LONG, Kafka, running, unique

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module", params=OTHERS if LONG else (OLDEST,))
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker of a version."""
    with broker_of(request.param) as broker:
        yield broker.bootstrap_servers


def count(value: int, state: State) -> list[int]:
    seen: int = state.get("seen", 0) + 1
    state.set("seen", seen)
    return [value, seen]


@pytest.mark.only_mode(
    "resident", reason="the broker takes seconds to start; make test-long shows the other mode", always=False
)
@pytest.mark.usefixtures("processing_mode")
def test_an_application_counts_exactly_once_and_goes_on(address: str, tmp_path: Path) -> None:
    """The second run has another disk, so that it restores its state; and each record counts behind an exchange."""
    kafka = Kafka(address, tmp_path)
    source, target, group = kafka.topic("in", 2), kafka.topic("out"), unique("group")
    for run in range(2):
        for partition in (0, 1):
            kafka.produce(source, [10 * run + partition], partition=partition)
        app = kafka.app(group, processing_guarantee="exactly-once", state_dir=tmp_path / str(run))
        frame = app.dataframe(app.topic(source)).group_by(lambda value: "all", name="all").apply(count, stateful=True)
        frame.to_topic(app.topic(target))
        with running(app):
            kafka.receive(target, 2 * (run + 1))
    values = [json.loads(record.value or b"") for record in kafka.receive_exactly(target, 4)]
    assert [seen for _, seen in values] == [1, 2, 3, 4]
    assert sorted(value for value, _ in values) == [0, 1, 10, 11]
