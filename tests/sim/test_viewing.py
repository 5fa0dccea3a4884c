"""Views in SQL under all kinds of faults: their rows are those of the query over the present rows of their tables."""

import random

import pytest

from tests.sim.app import Setup
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Simulation
from tests.sim.viewing import QUERIES, REPAIRED
from tests.sim.viewing_checks import ViewChecks
from tests.support import LONG

SEEDS = 200 if LONG else 1
MODES = (Simulation, ResidentSimulation)
CASES = [
    (viewing, kind, transactional)
    for number, viewing in enumerate(QUERIES)
    for kind in (MODES if LONG else [MODES[number % 2]])
    for transactional in ((True, False) if viewing in REPAIRED else [True])
    if LONG or transactional or number % 2
]
"""Ordinary runs take each view in one mode."""


@pytest.mark.slow
def test_whatever_goes_wrong_views_have_the_rows_of_their_query(capsys: pytest.CaptureFixture[str]) -> None:
    base = random.SystemRandom().randrange(1 << 32) if LONG else 3
    with capsys.disabled():
        print(f"\nbase seed of the simulator with views: {base}")
    faults = compared = 0
    for viewing, kind, transactional in CASES:
        for seed in range(base, base + SEEDS):
            simulation = kind(seed, Setup(transactional, True, False, False, viewing=viewing))
            simulation.run_to_end()
            faults += sum(simulation.counts.events.values())
            assert isinstance(simulation.checks, ViewChecks)
            compared += simulation.checks.compared
    # Without faults, and rows in the results, nothing is shown.
    assert faults > 2 * SEEDS * len(CASES)
    assert compared > 2 * SEEDS * len(CASES)
