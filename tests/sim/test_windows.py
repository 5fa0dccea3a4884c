"""Windows by watermark whose results the application reads again: whatever goes wrong, each comes with all its records."""

import random

import pytest

from tests.sim.windowing import WindowSimulation
from tests.support import LONG

SEEDS = 3_000 if LONG else 6


@pytest.mark.slow
def test_a20_a7_whatever_goes_wrong_all_windows_close(capsys: pytest.CaptureFixture[str]) -> None:
    base = random.SystemRandom().randrange(1 << 32) if LONG else 11
    with capsys.disabled():
        print(f"\nbase seed of the simulator with windows: {base}")
    faults = 0
    for seed in range(base, base + SEEDS):
        simulation = WindowSimulation(seed, transactional=bool(seed % 4))
        simulation.run_to_end()
        faults += sum(simulation.counts.events.values())
    assert faults > 2 * SEEDS
