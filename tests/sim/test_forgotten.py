"""Simulated runs in which Kafka forgets the offsets of a group, as it does a week after its last member has left."""

import pytest

from tests.sim.simulation import Simulation, Violation
from tests.support import LONG


@pytest.mark.slow
@pytest.mark.parametrize("transactional", [True, False])
def test_a4_a_group_whose_offsets_are_forgotten_processes_each_record(transactional: bool) -> None:
    for seed in range(1_000 if LONG else 20):
        Simulation(seed, transactional=transactional, forgets=True).run_to_end()


@pytest.mark.slow
def test_a4_positions_that_are_not_used_are_found() -> None:
    for seed in range(100):
        try:
            Simulation(seed, transactional=True, mutant="forgotten", forgets=True).run_to_end()
        except Violation:
            return
    pytest.fail("no seed shows that positions are not used")
