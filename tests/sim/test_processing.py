"""A process function with timers, a list and a map, under all kinds of faults, and with one at each point of a commit."""

import random

import pytest

from tests.sim.app import OUT, Setup
from tests.sim.ending import EndingSimulation
from tests.sim.processing import FIRED
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Faults, Simulation
from tests.sim.test_crash_points import CASES, Plan
from tests.support import LONG

SEEDS = 3_000 if LONG else 6
KINDS = pytest.mark.parametrize("kind", [Simulation, ResidentSimulation])


def setup_of(*, transactional: bool, expanding: bool = False) -> Setup:
    return Setup(transactional, stateful=True, grouped=False, second=False, processing=True, expanding=expanding)


def fired(simulation: Simulation) -> int:
    """Return how many outputs of timers there are."""
    logs = [log for place, log in simulation.broker.logs.items() if place.topic == OUT]
    return sum(b'"u":%d' % (FIRED // 1_000) in (entry.value or b"") for log in logs for entry in log.history())


@pytest.mark.parametrize("transactional", [True, False])
@KINDS
def test_whatever_goes_wrong_timers_and_collections_are_as_in_the_model(
    kind: type[Simulation], transactional: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    base = random.SystemRandom().randrange(1 << 32) if LONG else 1
    with capsys.disabled():
        print(f"\nbase seed of the simulator with a process function: {base}")
    timers, faults = 0, 0
    for seed in range(base, base + SEEDS):
        simulation = kind(seed, setup_of(transactional=transactional))
        simulation.run_to_end()
        timers += fired(simulation)
        faults += sum(simulation.counts.events.values())
    # Without timers and faults, nothing is shown.
    assert timers > 3 * SEEDS
    assert faults > 3 * SEEDS


@KINDS
def test_a6_whatever_goes_wrong_timers_behind_expanded_records_fire_once_in_portions(kind: type[Simulation]) -> None:
    base = random.SystemRandom().randrange(1 << 32) if LONG else 1
    timers = faults = 0
    for seed in range(base, base + SEEDS // 2):
        simulation = kind(seed, setup_of(transactional=True, expanding=True))
        simulation.run_to_end()
        timers += fired(simulation)
        faults += sum(simulation.counts.events.values())
    # Without timers and faults, nothing is shown.
    assert timers > SEEDS
    assert faults > SEEDS


@pytest.mark.parametrize("fault", ["crash", "exception", "takeover"] if LONG else ["crash"])
@pytest.mark.parametrize(("transactional", "point"), CASES)
@KINDS
def test_a_fault_at_a_point_of_the_commit(kind: type[Simulation], transactional: bool, point: str, fault: str) -> None:
    provoked = 0
    for number in (1, 2, 3, 4) if LONG else (2,):
        plan = Plan(point, fault, number)
        faults = Faults(planned=plan, left=0)
        setup = setup_of(transactional=transactional)
        if kind is ResidentSimulation:
            plan.simulation = ResidentSimulation(number, setup, faults, mixed=False)
        else:
            plan.simulation = kind(number, setup, faults)
        plan.simulation.run_to_end()
        provoked += plan.left <= 0
    assert provoked, f"no seed reaches {point} before the end"


@pytest.mark.parametrize("transactional", [True, False])
def test_whatever_goes_wrong_while_time_ends_all_timers_fire(
    transactional: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    base = random.SystemRandom().randrange(1 << 32) if LONG else 1
    with capsys.disabled():
        print(f"\nbase seed of the simulator with bounded runs: {base}")
    faults = 0
    for seed in range(base, base + SEEDS):
        simulation = EndingSimulation(seed, setup_of(transactional=transactional))
        simulation.run_to_end()
        faults += simulation.faults_at_the_end
    assert faults > SEEDS // 3


@pytest.mark.parametrize("fault", ["crash", "exception", "takeover"] if LONG else ["crash"])
@pytest.mark.parametrize(("transactional", "point"), CASES)
def test_a_fault_at_a_point_of_the_commit_at_the_end_of_time(transactional: bool, point: str, fault: str) -> None:
    provoked = 0
    for number in (1, 2, 3, 4) if LONG else (1,):
        plan = Plan(point, fault, number)
        simulation = EndingSimulation(number, setup_of(transactional=transactional), Faults(left=0))
        simulation.plan, plan.simulation = plan, simulation
        simulation.run_to_end()
        provoked += plan.left <= 0
    assert provoked, f"no seed reaches {point} at the end"
