"""Asynchronous calls that end in any order, above a stage with state, under all kinds of faults."""

import random

import pytest

from tests.sim.app import Setup
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Simulation
from tests.support import LONG

SEEDS = 3_000 if LONG else 6


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("kind", [Simulation, ResidentSimulation])
def test_whatever_goes_wrong_each_result_counts_once_and_in_order(
    kind: type[Simulation], transactional: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    base = random.SystemRandom().randrange(1 << 32) if LONG else 1
    with capsys.disabled():
        print(f"\nbase seed of the simulator with asynchronous calls: {base}")
    faults = waits = 0
    for seed in range(base, base + SEEDS):
        simulation = kind(seed, Setup(transactional, True, False, False, asynchronous=True))
        simulation.run_to_end()
        faults += sum(simulation.counts.events.values())
        waits += simulation.counts.waits
    # Without faults, and tasks that wait for calls, nothing is shown.
    assert faults > 3 * SEEDS
    assert waits > 3 * SEEDS
