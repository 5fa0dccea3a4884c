"""All pairs of operators in the test driver, on one partition and on several."""

import pytest

from streamrt.testing import InputRecord, TopologyTestDriver
from tests.matrix import KEY, OPERATORS, build
from tests.unit.apps import application

pytestmark = pytest.mark.usefixtures("processing_mode")


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("first", OPERATORS)
def test_each_operator_works_behind_each_other(first: str, partitions: int) -> None:
    app = application()
    matrix = build(
        app,
        "matrix",
        partitions,
        [(first, second) for second in OPERATORS],
        app.topic("out", key_serializer="str", key_deserializer="str"),
    )
    with TopologyTestDriver(app) as driver:
        driver.pipe_many(
            InputRecord(topic, value, KEY, timestamp, partition=matrix.partition)
            for topic, value, timestamp in matrix.records()
        )
        found = driver.read(matrix.out)
    assert {record.key for record in found} == {f"matrix: {first}, {second}" for second in OPERATORS}
