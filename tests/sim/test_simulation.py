"""Commits under all kinds of faults: thousands of seeds, each another application, other faults at other steps.

`python -m tests.sim --mode MODE --seed N`, or `pytest tests/sim --seed N`, replays a seed that was wrong.
"""

import random
from collections import Counter

import pytest

from streamrt.errors import SinkBackpressureError
from tests.sim.__main__ import MODES, simulate
from tests.sim.app import Setup, SimSink, WholeSimSink
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Faults, Process
from tests.support import LONG

SEEDS = {"micro-batch": 1_000, "resident": 600}
"""New ones for each run. Of the resident ones, some are mixed: one member of the group runs micro-batches."""


@pytest.mark.parametrize("mode", MODES)
def test_without_faults_each_input_is_processed_once(mode: str) -> None:
    for transactional in (True, False):
        for seed in range(5):
            simulation = MODES[mode](seed, faults=Faults(left=0, zombies=False), transactional=transactional)
            simulation.run_to_end()
            assert not simulation.counts.events


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_whatever_goes_wrong_the_invariants_hold(
    mode: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = request.config.getoption("--seed", default=None)
    base = random.SystemRandom().randrange(1 << 32) if seed is None else int(seed)
    count = SEEDS[mode] * (10 if LONG else 1) if seed is None else 1
    with capsys.disabled():
        print(f"\nbase seed of the simulator of {mode} tasks: {base}")
    events: Counter[str] = Counter()
    for number in range(base, base + count):
        simulation = simulate(mode, number)
        events.update(simulation.counts.events)
    if seed is None:
        # A simulator in which nothing happens shows nothing. Only micro-batches have twins.
        wanted = {"crash", "trouble", "takeover", "driver", "request", *(["twin"] if mode == "micro-batch" else [])}
        assert min(events[kind] for kind in wanted) > count // 20


@pytest.mark.parametrize("mode", MODES)
def test_a_seed_decides_everything(mode: str) -> None:
    traces = [simulate(mode, 5).trace for _ in range(2)]
    assert traces[0] == traces[1]


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("sink", [SimSink, WholeSimSink])
def test_sinks_that_want_pauses_get_each_record_once(sink: type[SimSink], transactional: bool) -> None:
    for seed in range(25):
        moods = random.Random(seed)

        def refuse(process: Process, where: str, moods: random.Random = moods) -> None:
            if where == "sink write" and moods.random() < 0.3:
                raise SinkBackpressureError(0.01)

        # Of merged inputs, one may be written when the other one is refused: they come again together.
        setup = Setup(transactional, seed % 3 > 0, False, False, sink=sink)
        simulation = ResidentSimulation(seed, setup, Faults(planned=refuse, left=0, zombies=False), mixed=False)
        # Nothing else happens.
        simulation.rounds = 0
        simulation.run_to_end()
        assert sorted(simulation.sunk) == sorted(
            (place, entry.offset) for place in simulation.inputs for entry in simulation.broker.logs[place].history()
        )
