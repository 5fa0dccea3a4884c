"""Programs with known outputs in the test driver, record by record, in both modes and with both guarantees."""

from typing import get_args

import pytest

from streamrt.config import ProcessingGuarantee
from streamrt.testing import TopologyTestDriver
from tests.known_programs import ALL, Advance, Clock, In, Out, Parts, Program, Together
from tests.unit.apps import application

CASES = [pytest.param(each, clock, id=f"{each.name}-{clock}") for each in ALL for clock in each.clocks]


@pytest.mark.usefixtures("processing_mode", "undivided_slices")
@pytest.mark.parametrize("guarantee", get_args(ProcessingGuarantee))
@pytest.mark.parametrize(("program", "clock"), CASES)
def test_outputs_come_after_the_inputs_that_bring_them(program: Program, clock: Clock, guarantee: str) -> None:
    app = application(processing_guarantee=guarantee)
    parts = Parts(app, clock, program.partitions)
    program.build(parts)
    expected: dict[str, list[Out]] = {topic: [] for topic in parts.outputs}
    found: dict[str, list[Out]] = {topic: [] for topic in parts.outputs}
    with TopologyTestDriver(app) as driver:
        for step in (*program.script, None):
            if isinstance(step, Out):
                expected[step.topic].append(step.written)
                continue
            for topic in parts.outputs:
                records = driver.read(parts.name(topic))
                found[topic] += [Out(record.key, record.value, record.timestamp, topic) for record in records]
            assert found == expected, f"before {step}"
            if isinstance(step, In):
                name = parts.name(step.topic)
                driver.pipe(name, step.value, key=step.key, timestamp=step.timestamp, partition=step.partition)
            elif isinstance(step, Together):
                driver.pipe_all(parts.name("in"), step.values, key="k", timestamp=0)
            elif isinstance(step, Advance):
                driver.advance(step.by)
            else:
                driver.end()
