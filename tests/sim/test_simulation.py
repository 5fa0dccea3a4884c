"""Commits under all kinds of faults: thousands of seeds, each another application, other faults at other steps.

`python -m tests.sim --mode MODE --seed N`, or `pytest tests/sim --seed N`, replays a seed that was wrong.
"""

import random
from collections import Counter

import pytest

from streamrt.errors import SinkBackpressureError
from tests.sim.__main__ import MODES, simulate
from tests.sim.app import Setup, SimSink, WholeSimSink
from tests.sim.resident import MicroDriver, ResidentSimulation
from tests.sim.simulation import Faults, Process, Simulation
from tests.support import LONG

LONG_SEEDS = {"micro-batch": 10_000, "resident": 6_000, "deployments": 4_000, "tokens": 5_000, "resident-tokens": 5_000}
SEEDS = LONG_SEEDS if LONG else {mode: 8 if "tokens" in mode else 20 for mode in MODES}
"""The same ones in each ordinary run, and new ones in a long one. Some of the resident ones are mixed: one member of the
group runs micro-batches."""
PARTS = 4 if LONG else 1
"""Each part of the seeds is a test: tests of minutes look as if they hang, where a machine is busy."""

WERE_WRONG = [
    ("deployments", 2_287_396_309),
    ("micro-batch", 4_188_989_679),
    ("resident", 537_033_659),
    ("tokens", 500_151),
    ("resident-tokens", 500_474),
]
"""Exactly once, an instance of a former version stood still just before it took its ids, and took them when it woke up. At
least once, a restore wrote values again without the position that they belong to, and compaction dropped the last one.
Exactly once, the end of a partition was committed over a higher offset, which the transaction of a former owner had. For
`wait_for`, records that retention had deleted counted as processed, while a task was at work on them."""


UNHARMFUL = {"deployment", "forgotten", "growth", "kept", "pause", "resume", "retention", "settled", "token"}


@pytest.mark.parametrize("mode", MODES)
def test_without_faults_each_input_is_processed_once(mode: str) -> None:
    for transactional in (True, False):
        for seed in range(50 if LONG else 3):
            simulation = MODES[mode](seed, faults=Faults(left=0, zombies=False), transactional=transactional)
            simulation.run_to_end()
            assert not simulation.counts.events.keys() - UNHARMFUL


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("mode", MODES)
def test_whatever_goes_wrong_the_invariants_hold(
    mode: str, part: int, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = request.config.getoption("--seed", default=None)
    count = -(-SEEDS[mode] // PARTS) if seed is None else 1
    base = 1 + part * count if seed is None else int(seed)
    if LONG and seed is None:
        base = random.SystemRandom().randrange(1 << 32)
    with capsys.disabled():
        print(f"\nbase seed of the simulator of {mode} tasks: {base}")
    events: Counter[str] = Counter()
    for number in range(base, base + count):
        simulation = simulate(mode, number)
        events.update(simulation.counts.events)
    if seed is None:
        # A simulator in which nothing happens shows nothing. Resident tasks have no twins, and keep partitions in rebalances.
        wanted = {"crash", "trouble", "takeover", "driver", "request", "kept" if "resident" in mode else "twin"}
        wanted |= {"deployment", "forgotten"} if mode == "deployments" else set()
        wanted |= {"token"} if "tokens" in mode else {"pause", "resume"} if mode == "micro-batch" else set()
        assert min(events[kind] for kind in wanted) > count // 20


@pytest.mark.parametrize(("mode", "seed"), WERE_WRONG)
def test_what_was_wrong_once(mode: str, seed: int) -> None:
    simulate(mode, seed)


@pytest.mark.parametrize("mode", MODES)
def test_a_seed_decides_everything(mode: str) -> None:
    traces = [simulate(mode, 5).trace for _ in range(2)]
    assert traces[0] == traces[1]


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("sink", [SimSink, WholeSimSink])
def test_sinks_that_want_pauses_get_each_record_once(sink: type[SimSink], transactional: bool) -> None:
    for seed in range(100 if LONG else 12):
        moods = random.Random(seed)

        def refuse(process: Process, where: str, moods: random.Random = moods) -> None:
            if where == "sink write" and moods.random() < 0.3:
                raise SinkBackpressureError(0.01)

        # Of merged inputs, one may be written when the other one is refused: they are delivered again together.
        setup = Setup(transactional, seed % 3 > 0, False, False, sink=sink)
        simulation = ResidentSimulation(seed, setup, Faults(planned=refuse, left=0, zombies=False), mixed=False)
        # Nothing else happens.
        simulation.rounds = 0
        simulation.run_to_end()
        assert sorted(simulation.sunk) == sorted(
            (place, entry.offset) for place in simulation.inputs for entry in simulation.broker.logs[place].history()
        )


@pytest.mark.parametrize("transactional", [False, True])
def test_the_end_comes_after_the_start_that_tells_of_deleted_records(transactional: bool) -> None:
    setup = Setup(transactional, True, False, False, False)
    simulation = ResidentSimulation(1, setup, Faults(left=0, zombies=False), mixed=False)
    simulation.rounds = 0
    for place in simulation.inputs:
        log = simulation.broker.logs[place]
        log.delete(log.end)
    # Nothing is left to read, and the group is behind all of it.
    simulation.run_to_end()
    assert all(log.low == log.end for log in map(simulation.broker.logs.__getitem__, simulation.inputs))
    assert {place: at for place, (at, _) in simulation.broker.offsets.items()} == {
        place: simulation.broker.logs[place].end for place in simulation.inputs
    }


def test_a_driver_of_micro_batches_commits_nothing_of_a_former_assignment() -> None:
    simulation = ResidentSimulation(1, Setup(False, True, False, False, False), Faults(left=0), mixed=True)
    driver, places = MicroDriver(simulation), frozenset(simulation.inputs)
    driver.assign(places)
    assert driver.start()
    driver._pending = dict.fromkeys(places, 1)
    before = dict(simulation.broker.offsets)
    driver.evict()
    simulation.broker.generation += 1
    driver.assign(places)
    driver.give_back(places)
    assert simulation.broker.offsets == before


@pytest.mark.slow
def test_copies_of_state_are_never_ahead_of_what_is_committed() -> None:
    events: Counter[str] = Counter()
    seeds = 6_000 if LONG else 20
    for seed in range(seeds):
        events.update(simulate("standbys", seed).counts.events)
    assert events["follows"] > 10 * seeds


@pytest.mark.slow
def test_late_records_of_a_transaction_are_not_in_the_next_one() -> None:
    """Brokers before KIP-890 take them for a record of it; a producer is therefore spent after any error."""
    for seed in range(500 if LONG else 5):
        Simulation(seed, transactional=True, sinks=False, pauses=False, late_requests=True).run_to_end()
        ResidentSimulation(seed, transactional=True, sinks=False, late_requests=True).run_to_end()
