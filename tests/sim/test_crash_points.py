"""Each point of a commit, with one fault of each kind there: afterwards everything is as the model says."""

import pytest

from streamrt.runtime.tasks.faults import POINTS, InjectedFaultError
from tests.sim.app import Setup
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Faults, Process, Simulation
from tests.support import LONG

SEEDS = 6 if LONG else 3
RESIDENT_SEEDS = 4 if LONG else 3
PAUSED_SEEDS = 40
PROVOKED = PAUSED_SEEDS if LONG else 2
"""How often a fault must have come while everything was being paused, for a test to be over before all seeds were tried."""
RESUMED_AFTER = 150
NUMBERS = (1, 2, 3)
_TRANSACTIONAL_ONLY = ("opened", "fenced", "checked", "committed")
_AT_LEAST_ONCE_ONLY = ("outputs-flushed",)


def seeds(count: int, number: int) -> list[int]:
    """Return the seeds, each another application, with which a point is reached so often.

    In an ordinary run, a kind of fault at a point meets each application with one of the numbers.
    """
    return [seed for seed in range(count) if LONG or seed % len(NUMBERS) == number % len(NUMBERS)]


CASES = [
    (transactional, point)
    for transactional in (True, False)
    for point in POINTS
    if point not in (_AT_LEAST_ONCE_ONLY if transactional else _TRANSACTIONAL_ONLY)
]


class Plan:
    """One fault.

    Args:
        point: where.
        kind: "crash", "exception", "twin", "takeover" or "driver".
        number: how often the point is reached before.
    """

    def __init__(self, point: str, kind: str, number: int) -> None:
        self.point, self.kind, self.left = point, kind, number
        self.simulation: Simulation | None = None

    def __call__(self, process: Process, where: str) -> None:
        simulation = self.simulation
        if simulation is None or simulation.calm or where != self.point:
            return
        self.left -= 1
        if self.left != 0:
            return
        if self.kind == "crash":
            simulation.crash(process, where)
        elif self.kind == "exception":
            raise InjectedFaultError(f"injected at {where}")
        elif self.kind == "twin":
            simulation.start_twin()
        elif self.kind == "driver":
            assert isinstance(simulation, ResidentSimulation)
            simulation.resident_driver.die()
        else:
            simulation.take_over(True)


class PausePlan(Plan):
    """One fault after all topics were paused, and the end of the pause some time later.

    Args:
        point: where.
        kind: see `Plan`.
        steps: after how many steps everything is paused.
    """

    def __init__(self, point: str, kind: str, steps: int) -> None:
        super().__init__(point, kind, 1)
        self._steps = steps
        self.while_pausing = False

    def __call__(self, process: Process, where: str) -> None:
        simulation = self.simulation
        if simulation is None or simulation.calm:
            return
        self._steps -= 1
        if self._steps == 0:
            simulation.want(frozenset(simulation.setup.sources))
        elif self._steps == -RESUMED_AFTER:
            simulation.want(frozenset())
        if self._steps <= 0 < self.left and where == self.point:
            self.while_pausing = simulation.is_pausing
            super().__call__(process, where)


@pytest.mark.parametrize("kind", ["crash", "exception", "takeover"] if LONG else ["crash"])
@pytest.mark.parametrize(("transactional", "point"), CASES)
@pytest.mark.parametrize("simulated", [Simulation, ResidentSimulation])
def test_a_fault_at_a_point_of_the_commit_while_the_application_is_being_paused(
    simulated: type[Simulation], transactional: bool, point: str, kind: str
) -> None:
    provoked = 0
    for seed in range(PAUSED_SEEDS):
        # From the middle of the first commits on.
        plan = PausePlan(point, kind, 20 + 13 * seed)
        grouped = bool(seed % 2)
        setup = Setup(
            transactional, stateful=True, grouped=grouped, second=seed % 3 == 0, merged=not grouped and seed % 4 == 2
        )
        faults = Faults(planned=plan, left=0)
        # All other wishes are those of the plan.
        plan.simulation = (
            ResidentSimulation(seed, setup, faults, mixed=False, wishes=False)
            if simulated is ResidentSimulation
            else Simulation(seed, setup, faults, pauses=False)
        )
        plan.simulation.run_to_end()
        provoked += plan.while_pausing
        if provoked == PROVOKED:
            break
    assert provoked, f"no seed reaches {point} while it pauses"


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("kind", ["crash", "exception", "twin", "takeover"])
@pytest.mark.parametrize(("transactional", "point"), CASES)
def test_a_fault_at_a_point_of_the_commit(transactional: bool, point: str, kind: str, number: int) -> None:
    provoked = 0
    for seed in seeds(SEEDS, number):
        plan = Plan(point, kind, number)
        faults = Faults(planned=plan, left=0)
        grouped = bool(seed % 2)
        setup = Setup(
            transactional, stateful=True, grouped=grouped, second=seed % 3 == 0, merged=not grouped and seed > 1
        )
        plan.simulation = Simulation(seed, setup, faults)
        plan.simulation.run_to_end()
        provoked += plan.left <= 0
    assert provoked, f"no seed reaches {point} {number} times before the end"


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("kind", ["crash", "exception", "takeover", "driver"])
@pytest.mark.parametrize(("transactional", "point"), CASES)
def test_a_fault_at_a_point_of_the_commit_of_a_resident_task(
    transactional: bool, point: str, kind: str, number: int
) -> None:
    provoked = 0
    for seed in seeds(RESIDENT_SEEDS, number):
        plan = Plan(point, kind, number)
        faults = Faults(planned=plan, left=0)
        grouped = bool(seed % 2)
        setup = Setup(
            transactional, stateful=True, grouped=grouped, second=seed % 3 == 0, merged=not grouped and seed > 1
        )
        simulation = plan.simulation = ResidentSimulation(seed, setup, faults, mixed=False)
        simulation.run_to_end()
        provoked += plan.left <= 0
    assert provoked, f"no seed reaches {point} {number} times before the end"
