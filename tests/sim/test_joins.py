"""Frames that meet behind exchanges: with a backlog on both sides, late records, and all kinds of faults."""

import random

import pytest

from tests.sim.app import Setup
from tests.sim.joining import JoinChecks
from tests.sim.meeting import KINDS
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Simulation
from tests.support import LONG

SEEDS = 2_000 if LONG else 3


@pytest.mark.slow
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("joining", KINDS)
@pytest.mark.parametrize("kind", [Simulation, ResidentSimulation])
def test_a19_whatever_goes_wrong_a_merge_takes_older_records_first(
    kind: type[Simulation], joining: str, transactional: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    base = random.SystemRandom().randrange(1 << 32) if LONG else 1
    with capsys.disabled():
        print(f"\nbase seed of the simulator with merges behind exchanges: {base}")
    faults = compared = 0
    for seed in range(base, base + SEEDS):
        simulation = kind(seed, Setup(transactional, True, False, False, joining=joining))
        simulation.run_to_end()
        faults += sum(simulation.counts.events.values())
        assert isinstance(simulation.checks, JoinChecks)
        compared += simulation.checks.compared
    # Without faults, and older records on their way, nothing is shown.
    assert faults > 2 * SEEDS
    assert compared > 20 * SEEDS
