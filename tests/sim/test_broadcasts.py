"""Broadcast state and timers, with records of both sides that come at any time, under all kinds of faults."""

import random

import pytest

from tests.sim.app import Setup
from tests.sim.broadcast_checks import BroadcastChecks
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Simulation
from tests.support import LONG

SEEDS = 3_000 if LONG else 4


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("kind", [Simulation, ResidentSimulation])
def test_whatever_goes_wrong_each_partition_gets_each_broadcast_record_in_time(
    kind: type[Simulation], transactional: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    base = random.SystemRandom().randrange(1 << 32) if LONG else 1
    with capsys.disabled():
        print(f"\nbase seed of the simulator with broadcast state: {base}")
    faults = compared = 0
    for seed in range(base, base + SEEDS):
        simulation = kind(seed, Setup(transactional, True, False, False, broadcasting=True))
        simulation.run_to_end()
        faults += sum(simulation.counts.events.values())
        assert isinstance(simulation.checks, BroadcastChecks)
        compared += simulation.checks.compared
    # Without faults, and records of both sides that are there at once, nothing is shown.
    assert faults > 2 * SEEDS
    assert not transactional or compared > 10 * SEEDS
