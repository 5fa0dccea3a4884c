"""Recorded cases of Kafka Streams, whose tables change as those of StreamRT do: see `tests.oracle.kafka_streams`."""

import pytest

from tests.oracle.kafka_streams.compare import differences
from tests.oracle.kafka_streams.ours import run
from tests.oracle.kafka_streams.recorded import NUMBERS, load


@pytest.mark.slow
@pytest.mark.parametrize("kind", NUMBERS)
def test_tables_change_as_those_of_kafka_streams(kind: str) -> None:
    cases = list(load(kind))
    assert len(cases) == NUMBERS[kind]
    for case, answers in cases:
        assert differences(case, answers, run(case)) == [], f"{kind} {case['seed']}"
