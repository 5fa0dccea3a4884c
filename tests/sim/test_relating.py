"""Applications with tables under all kinds of faults: the result is that of the same operations on the present rows."""

import random

import pytest

from tests.sim.app import Setup
from tests.sim.relating import KINDS
from tests.sim.relating_checks import TableChecks
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Simulation
from tests.support import LONG

SEEDS = 2_000 if LONG else 3


@pytest.mark.slow
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("kind", [Simulation, ResidentSimulation])
def test_whatever_goes_wrong_tables_are_what_their_rows_make_them(
    kind: type[Simulation], transactional: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    base = random.SystemRandom().randrange(1 << 32) if LONG else 1
    with capsys.disabled():
        print(f"\nbase seed of the simulator with tables: {base}")
    faults = compared = 0
    for seed in range(base, base + SEEDS):
        simulation = kind(seed, Setup(transactional, True, False, False, relating=KINDS[seed % len(KINDS)]))
        simulation.run_to_end()
        faults += sum(simulation.counts.events.values())
        assert isinstance(simulation.checks, TableChecks)
        compared += simulation.checks.compared
    # Without faults, and rows in the stores, nothing is shown.
    assert faults > 2 * SEEDS
    assert compared > 5 * SEEDS
