"""Applications that derive tables under all kinds of faults: the result is what a batch makes of the rows that there are."""

import random

import pytest

from tests.sim.app import Setup
from tests.sim.deriving import DERIVED, REPAIRED
from tests.sim.deriving_checks import DerivedChecks
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Simulation
from tests.support import LONG

SEEDS = 500 if LONG else 1


@pytest.mark.slow
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("kind", [Simulation, ResidentSimulation])
def test_whatever_goes_wrong_tables_are_what_a_batch_makes_of_their_rows(
    kind: type[Simulation], transactional: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    base = random.SystemRandom().randrange(1 << 32) if LONG else 13
    with capsys.disabled():
        print(f"\nbase seed of the simulator with derived tables: {base}")
    faults = compared = 0
    for derived in DERIVED if transactional else REPAIRED:
        for seed in range(base, base + SEEDS):
            # Each step of a row to its subscribers may end a portion.
            setup = Setup(transactional, True, False, False, deriving=derived, expanding=seed % 2 == 1)
            simulation = kind(seed, setup)
            simulation.run_to_end()
            faults += sum(simulation.counts.events.values())
            assert isinstance(simulation.checks, DerivedChecks)
            compared += simulation.checks.compared
    # Without faults, and rows in the results, nothing is shown.
    assert faults > 4 * SEEDS
    assert compared > 20 * SEEDS
