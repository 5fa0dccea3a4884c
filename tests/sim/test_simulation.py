"""Commits under all kinds of faults: thousands of seeds, each another application, other faults at other steps.

`python -m tests.sim --seed N`, or `pytest tests/sim --seed N`, replays a seed that was wrong.
"""

import random
from collections import Counter

import pytest

from tests.sim.simulation import Faults, Simulation

SEEDS = 2_000
"""New ones for each run, some 40 s."""


def test_without_faults_each_input_is_processed_once() -> None:
    for transactional in (True, False):
        for seed in range(5):
            simulation = Simulation(seed, faults=Faults(left=0), transactional=transactional)
            simulation.run_to_end()
            assert not simulation.counts.events


@pytest.mark.slow
def test_whatever_goes_wrong_the_invariants_hold(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = request.config.getoption("--seed", default=None)
    base = random.SystemRandom().randrange(1 << 32) if seed is None else int(seed)
    with capsys.disabled():
        print(f"\nbase seed of the simulator: {base}")
    events: Counter[str] = Counter()
    for number in range(base, base + (SEEDS if seed is None else 1)):
        simulation = Simulation(number)
        simulation.run_to_end()
        events.update(simulation.counts.events)
    if seed is None:
        # A simulator in which nothing happens shows nothing.
        assert min(events[kind] for kind in ("crash", "trouble", "twin", "takeover", "driver", "request")) > SEEDS // 20


def test_a_seed_decides_everything() -> None:
    traces = []
    for _ in range(2):
        simulation = Simulation(5)
        simulation.run_to_end()
        traces.append(simulation.trace)
    assert traces[0] == traces[1]
