"""Bounded runs in the simulator: once everything is processed, time ends, and things go wrong meanwhile."""

from collections.abc import Callable
from dataclasses import replace

from streamrt.runtime.tasks.faults import InjectedFaultError
from streamrt.state.layout import TIMER_SPACE
from streamrt.topology import TaskId
from tests.sim.clients import Crash
from tests.sim.driver import Driver, Wrong
from tests.sim.simulation import Process, Simulation

_ROUNDS = 200
_FAULTS = 6


class EndingSimulation(Simulation):
    """A bounded run.

    Attributes:
        plan: the fault that comes while time ends.
        faults_at_the_end: how many others have come while it ends.
    """

    mode = "bounded"
    plan: Callable[[Process, str], None] | None = None
    faults_at_the_end = 0

    def _finish(self) -> None:
        self._process_all()
        self.checks.outputs(final=True)
        self.ended = True
        # A bounded run reads up to the ends that there were; what comes later belongs to another run.
        self._additions = self._waves = 0
        self.calm = False
        self.faults.planned = self.plan
        left = self.faults.left = _FAULTS if self.faults.rate else 0
        for _ in range(_ROUNDS):
            self.note("time ends")
            # A pause holds the end up.
            self.paused = frozenset()
            self.driver = Driver(self)
            if self._end_time(self.driver):
                break
            self.checks.outputs()
            self.broker.wait(1)
        else:
            raise Wrong("time does not end")
        self.faults_at_the_end = left - self.faults.left
        self.calm = True
        self.broker.wait(1)
        # What the dead have left ends with the next start.
        self.driver = Driver(self)
        if not self.driver.start():
            raise Wrong("the application cannot start again")
        self.broker.wait(1)
        self._check_all()
        for machine in self.machines:
            for name in machine.partitions():
                if left_timers := [key for key in machine.content(name)[0] if key[0] == TIMER_SPACE]:
                    raise Wrong(f"{name} on machine {machine.number} has timers after the end of time: {left_timers}")

    def _end_time(self, driver: Driver) -> bool:
        """Tick all tasks until their operators have finished; return False if that must be tried again."""
        if not driver.start():
            return False
        tasks = list(driver.tasks)
        self.rng.shuffle(tasks)
        return all(self._end_task(driver, task) and not driver.replaced for task in tasks)

    def _end_task(self, driver: Driver, task: TaskId) -> bool:
        ending = frozenset(node.id for node in self.spec.topology.members(task.stream) if node.operator.ends())
        process = self.process(task)
        context = replace(driver.context(), final={task: ending})
        try:
            with self.running(process, None):
                report = process.tasks.tick([task], replace(context, attempt=self.counts.attempts))
        except Crash:
            return False
        except InjectedFaultError:
            self.kill(process)
            return False
        self.checks.failure(report)
        done: frozenset[int] = report.ended.get(task, frozenset())
        self.note(f"{process.name} has ended {sorted(done)} of {task}")
        return done == ending and report.failure is None
