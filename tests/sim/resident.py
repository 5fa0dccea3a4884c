"""The world of resident tasks in the simulator, and what befalls them.

In mixed runs one member of the group is a driver of micro-batches.
"""

import contextlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import streamrt.runtime.resident.loop as resident_module
from streamrt.errors import RunnerError
from streamrt.models import TopicPartition
from streamrt.runtime.link_messages import Time
from streamrt.runtime.report import Report
from tests.sim.app import Setup, unique_id
from tests.sim.calls import CAPACITY
from tests.sim.driver import SLICE_S, Attempt, Driver, Wrong
from tests.sim.group import Group, Member
from tests.sim.incremental import IncrementalGroup
from tests.sim.resident_tasks import Resident, ResidentDriver
from tests.sim.simulation import Faults, Process, Simulation, replaced

_STEPS = 2_500
_NESTED = 2
_CALM = 5_000


class MicroDriver(Driver):
    """A driver of micro-batches that shares the group with resident tasks."""

    def __init__(self, sim: "ResidentSimulation") -> None:
        super().__init__(sim)
        self._world = sim
        self._places: frozenset[TopicPartition] = frozenset()
        self.inputs, self.tasks = [], []
        self.evicted = self.dead = self._started = False
        sim.group.join(self)

    def __str__(self) -> str:
        return "the driver of micro-batches"

    @property
    def alive(self) -> bool:
        return not self.dead

    def _follow(self) -> None:
        """The group says what is assigned."""
        self.inputs = sorted(self._places)
        self.tasks = sorted({self.sim.spec.topology.task(place) for place in self._places})

    @property
    def _is_behind(self) -> bool:
        return False

    @property
    def replaced(self) -> bool:
        return self.dead or self.generation != self.sim.broker.generation

    def step(self) -> None:
        """Run a micro-batch."""
        rng = self.sim.rng
        if self.evicted:
            self.evicted = False
            self._places, self._started = frozenset(), False
            self._follow()
            self._world.group.join(self)
        if not self._places or self.replaced:
            return
        with self._world.acts(self):
            if not self._started:
                self._started = self.start()
                return
            self._started = self.batch()
            if not self.replaced and rng.random() < 0.3:
                self.idle()
                if rng.random() < 0.5:
                    self.purge()
            if not self.replaced and (not self._started or self.sim.calm):
                self.commit()

    def _note(self, report: Report) -> None:
        self._world.take(report)
        super()._note(report)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._places

    @property
    def is_open(self) -> bool:
        """Whether all its tasks are open, and none has work that portions have left."""
        left = self.sim.setup.leaves_work and self._unfinished.tasks
        return not self.evicted and (not self._places or (self._started and not left))

    def give_back(self, places: frozenset[TopicPartition]) -> None:
        if self._places and not self.replaced:
            with self._world.acts(self):
                self.commit()
        self._places, self._started = frozenset(), False
        self._follow()

    def evict(self) -> None:
        self.evicted = True

    freeze = evict

    def halt(self) -> None:
        """Nothing is done between two steps anyway."""

    def assign(self, places: frozenset[TopicPartition]) -> None:
        self.generation = self.sim.broker.generation
        # What was processed under a former assignment repeats, unless it was committed by then: others may have been there.
        self._pending.clear()
        self._places = places
        self._follow()
        self._phases.restart()
        self._unfinished.forget()
        self._started = self.evicted = False


class ResidentSimulation(Simulation):
    """A world with resident tasks.

    Args:
        mixed: whether one member of the group is a driver of micro-batches; decided by the seed if it is not given.
        wishes: whether callers of the application pause topics and have it commit; decided likewise.
        incremental: whether the group is one of the protocol `consumer`, with only resident tasks; decided likewise.
    """

    mode = "resident"
    brings_late_records = True

    def __init__(
        self,
        seed: int,
        setup: Setup | None = None,
        faults: Faults | None = None,
        mutant: str = "",
        transactional: bool | None = None,
        sinks: bool = True,
        mixed: bool | None = None,
        wishes: bool | None = None,
        incremental: bool | None = None,
        late_requests: bool = False,
    ) -> None:
        super().__init__(seed, setup, faults, mutant, transactional, sinks, late_requests=late_requests)
        own = random.Random(f"resident {seed}")
        self.mixed = own.random() < 0.3 if mixed is None else mixed
        if incremental is None:
            incremental = random.Random(f"protocol {seed}").random() < 0.4
        self.incremental = incremental and not self.mixed
        if self.mixed and self.setup.joining:
            # Micro-batches wait for what was there when they began.
            self._waves = 0
        self._slots = own.choice((1, 2, 2, 3))
        # One record at a time, or all that there are: nothing of it depends on how fast this machine is.
        self._slice_s = own.choice((float("inf"), float("inf"), -1.0))
        self._wishes = own.random() < 0.3 if wishes is None else wishes
        # Other seeds stay as they were without it.
        self._wisher = own
        self.acting: list[Member] = []
        self.residents: list[Resident] = []
        self.group = IncrementalGroup(self) if self.incremental else Group(self)
        self.resident_driver = self.new_driver()
        self.micro: MicroDriver | None = None
        self.rounds = 3
        """How long it goes on without faults before it comes to the end."""
        self.answering_ms = 0
        """How long others have acted while a driver waited for answers, in which no task works."""
        self._taken: dict[TopicPartition, set[int]] = {}
        self._done: dict[str, tuple[set[int], dict[TopicPartition, int]]] = {}
        """Without faults, what a process has processed, and when it last did so, by input."""

    def notices(self) -> bool:
        """Return whether a client hears of it that a topic is another one."""
        return False

    def new_driver(self) -> ResidentDriver:
        """Return the driver of another run of the application."""
        return ResidentDriver(self)

    def want(self, paused: frozenset[str]) -> None:
        self._happens("pause" if paused else "resume", f"a commit is wanted, and a pause of {sorted(paused)}")
        self.resident_driver.want(paused)

    @property
    def is_pausing(self) -> bool:
        driver = self.resident_driver
        asked = driver.run_request
        return bool(asked.paused) and any(link.settled.number < asked.number for link in driver.links)

    def wait(self, seconds: float) -> None:
        """Let time pass while somebody waits."""
        self.broker.now += max(1, round(seconds * 1_000))

    # -- The run -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        slice_s = SLICE_S if self.slow_ms else self._slice_s
        if self.setup.timed:
            # No one ticks here, so timers fire in one portion.
            slice_s = float("inf")
        with replaced(resident_module, "_SLICE_S", slice_s), replaced(resident_module, "_RESTORE_S", slice_s):
            self.calm = False
            rounds = 0
            while self.counts.steps < _STEPS and (self.faults.left > 0 or rounds < self.rounds):
                self._live(self.rng.randint(10, 60))
                self.checks.outputs()
                rounds += 1
            self._finish()

    def _finish(self) -> None:
        """Let tasks without faults come to the end, and check everything."""
        self.note("calm")
        self.calm = True
        if self.resident_driver.run_request.number:
            self.resident_driver.want(frozenset())
        self.group.pending = True
        # What a process still had in its producer may arrive at its end, at least once: then there is more to do.
        for _ in range(3):
            self._come_to_the_end()
            if not self._left():
                break
        else:
            raise Wrong(f"after the end, records are left: {self.broker.offsets}")
        self.checks.outputs(final=True)
        # Begin once more, which ends what the dead have left.
        self.driver = Driver(self)
        if not self.driver.start():
            raise Wrong("the application cannot start again")
        self.broker.wait(1)
        self.checks.state()
        if left := self.broker.open_transactions():
            raise Wrong(f"transactions were left open: {left}")

    def _come_to_the_end(self) -> None:
        """Process all that there is, and stop."""
        for _ in range(_CALM):
            self._turn()
            self.broker.wait(1)
            if self._all_open() and not self._left():
                break
        else:
            raise Wrong("the application does not get to the end")
        self.resident_driver.stop(False)
        while self.residents:
            self.residents[0].step()
        if self.micro is not None:
            self.micro.give_back(self.micro.owned)
            self.micro.dead = True
            self.group.leave(self.micro)
            self.micro = None
        self.broker.wait(1)

    def _left(self) -> bool:
        """Tell whether any record is not committed, or the group is behind deleted ones: a start must tell of them first.

        Work that portions have left counts as well.
        """
        if any(task.unfinished for resident in self.residents for task in resident.process.tasks.assigned.values()):
            return True
        offsets, logs = self.broker.offsets, self.broker.logs
        reached = {place: offsets.get(place, (0, None))[0] for place in self.inputs}
        return any(at < logs[place].low or any(logs[place].read(at, 1 << 62)) for place, at in reached.items())

    def _all_open(self) -> bool:
        """Tell whether each task is open: one that has moved may have work that portions have left, yet unknown to all."""
        if self.micro is not None and not self.micro.is_open:
            return False
        opened = {task for resident in self.residents for task in resident.process.tasks.assigned}
        elsewhere = self.micro.owned if self.micro is not None else ()
        return opened.issuperset(set(self.tasks).difference(map(self.spec.topology.task, elsewhere)))

    def _live(self, turns: int) -> None:
        for _ in range(turns):
            self._turn()
            self.surroundings() if self.rng.random() < 0.1 else None

    def _turn(self) -> None:
        """Let somebody who is not suspended do something."""
        rng = self.rng
        self._populate()
        for resident in self.residents:
            resident.frozen = resident.frozen and not self.calm and rng.random() < 0.985
        awake = [resident for resident in self.residents if resident not in self.acting and not resident.frozen]
        if rng.random() < (0.3 if self.group.pending else 0.0 if self.calm else 0.01):
            self.group.rebalance()
        elif not self.calm and rng.random() < 0.005 and not self.acting:
            self.note("the application is stopped")
            self.resident_driver.stop(rng.random() < 0.5)
        elif self.micro is not None and self.micro not in self.acting and rng.random() < 0.25:
            self.micro.step()
        elif awake:
            resident = rng.choice(awake)
            if self._wishes and not self.calm and not resident.driver.dead and self._wisher.random() < 0.04:
                topics = sorted(self.spec.topology.sources)
                paused = frozenset(topic for topic in topics if self._wisher.random() < 0.4)
                self.note(f"a commit is wanted, and a pause of {sorted(paused)}")
                resident.driver.want(paused)
            elif rng.random() < 0.3:
                resident.driver.serve(resident.link)
                self.served(resident)
                if not self.setup.windowed and rng.random() < 0.1:
                    due = frozenset(task for task in self.tasks if rng.random() < 0.5)
                    resident.link.inbox.append(Time({}, due))
            else:
                resident.step()

    def served(self, resident: Resident) -> None:
        """Do what a driver does from time to time for a task."""

    def _populate(self) -> None:
        """Start what is missing."""
        driver = self.resident_driver
        if driver.dead or (driver.stopping and not driver.links):
            self.resident_driver = driver = self.new_driver()
        if self.mixed and self.micro is None:
            self.micro = MicroDriver(self)
        if not driver.stopping and len(driver.links) < self._slots and (self.calm or self.rng.random() < 0.3):
            slots = {resident.slot for resident in self.residents if resident.link in driver.links}
            slot = next(slot for slot in range(self._slots) if slot not in slots)
            self.residents.append(Resident(self, driver, self.rng.choice(self.machines), slot))

    @contextlib.contextmanager
    def acts(self, member: Member) -> Iterator[None]:
        """Note who does something: it is suspended while others do something in between."""
        self.acting.append(member)
        try:
            if isinstance(member, Resident):
                with self.running(member.process, None):
                    yield
            else:
                yield
        finally:
            self.acting.remove(member)

    def take(self, report: Report) -> None:
        """Note what sinks of the driver have by now."""
        for place, done in report.ranges.items():
            self._taken.setdefault(place, set()).update(range(done.start, done.end))

    def check_taken(self, offsets: Mapping[TopicPartition, int]) -> None:
        """At least once, offsets are committed only when the driver has taken the records below them."""
        for place, end in offsets.items():
            taken = self._taken.get(place, set())
            missing = [entry.offset for entry in self.broker.logs[place].history(end) if entry.offset not in taken]
            if missing:
                raise Wrong(f"{place} is committed at {end}, but the driver has not taken {missing}")

    def grow(self) -> None:
        super().grow()
        self.group.pending = True

    def check_step(self, resident: Resident, begun: int) -> None:
        """Without faults, a task looks after the group in time, however slow functions are."""
        # What is below asynchronous calls works for all that have a result, before the task looks around.
        most = (2 + CAPACITY * self.setup.asynchronous) * self.slow_ms + 2_000
        took = self.broker.now - self.answering_ms - begun
        if self.calm and took > most:
            raise Wrong(f"{resident} has worked for {took} ms without hearing of the group; {most} are much")

    def pause(self, value: dict[str, Any]) -> None:
        super().pause(value)
        if self.slow_ms and self.calm and not self.setup.grouped and not self.setup.merged:
            self._check_turns(value["u"])

    def _check_paused(self, unique: int) -> None:
        """No task processes a record of a topic that it has paused."""
        super()._check_paused(unique)
        process = self._stack[-1][0]
        resident = next((each for each in self.residents if each.process is process), None)
        place = self.homes.get(unique)
        if resident is None or place is None or self.setup.grouped:
            # Below a grouping, it is the repartition topic that counts.
            return
        link = resident.link
        if place.topic in link.settled.paused and link.settled is link.told:
            raise Wrong(f"{process.name} processes record {unique} of {place}, which is paused")

    def _check_turns(self, unique: int) -> None:
        """Without faults, all partitions of a task get on, however slow functions are."""
        process, now = self._stack[-1][0], self.broker.now
        resident = next((each for each in self.residents if each.process is process), None)
        if resident is None:
            return
        done, turns = self._done.setdefault(process.name, (set(), {}))
        done.add(unique)
        turns[self.homes[unique]] = now
        tasks = [task for task in resident.task._tasks.assigned.values() if task.is_open]
        most = (len(tasks) + 1) * (self.slow_ms + 1_000) + 3_000
        for place, at in [found for task in tasks for found in task.start.items()]:
            left = [entry for entry in self.broker.logs[place].read(at, 1 << 62) if unique_id(entry) not in done]
            waited = now - turns.setdefault(place, now)
            if not left:
                turns[place] = now
            elif waited > most:
                raise Wrong(f"{process.name} leaves {place} alone for {waited} ms, with {len(left)} records to process")

    def refuse(self, error: Exception) -> None:
        """Refuse that the application ends, unless there were too many faults for it."""
        if self.calm or not (isinstance(error, RunnerError) or "injected" in str(error)):
            raise Wrong(f"the application ends: {type(error).__name__}: {error}") from error
        self.note(f"the application ends: {error}")

    # -- Faults --------------------------------------------------------------------------------------------------------

    def rival(self, process: Process, where: str) -> None:
        if len(self._stack) > _NESTED:
            return
        attempt = self._stack[-1][1]
        if attempt is not None and self.rng.random() < 0.5:
            super().rival(process, where)
            return
        self._happens("takeover", f"{process.name} is suspended at {where!r}, others take its partitions over")
        self.take_over(self.rng.random() < 0.5)
        self.note(f"{process.name} goes on at {where!r}")

    def freezes(self) -> bool:
        """Tell whether a member freezes that has just given its partitions back."""
        if self.calm or self.faults.left <= 0 or self.rng.random() >= self.faults.rate * 15:
            return False
        self.faults.left -= 1
        self.counts.events["frozen"] = self.counts.events.get("frozen", 0) + 1
        return True

    def take_over(self, whole: bool) -> None:
        if self.faults.zombies:
            self.group.rebalance()
        self._live(self.rng.randint(20, 80) if whole else self.rng.randint(3, 20))

    def meanwhile(self) -> None:
        """Let others act while the driver of the resident tasks waits for an answer."""
        begun = self.broker.now
        if len(self._stack) <= _NESTED and self.rng.random() < 0.5:
            for _ in range(self.rng.randint(1, 100)):
                self._turn()
        self.answering_ms += self.broker.now - begun

    def driver_dies(self, driver: ResidentDriver, where: str) -> None:
        """Pass a place where the driver may die, and its processes with it, or a moment later."""
        if self.calm or driver.dead or self.faults.left <= 0 or self.rng.random() >= self.faults.rate * 4:
            return
        self.faults.left -= 1
        self._happens("driver", f"the driver of the resident tasks dies at {where!r}")
        driver.die()
        for resident in list(self.residents):
            if resident not in self.acting and self.rng.random() < 0.5:
                resident._gone()

    def driver_step(self, driver: Driver, where: str) -> None:
        if self.calm or driver.replaced or self.faults.left <= 0 or self.rng.random() >= self.faults.rate * 4:
            return
        self.faults.left -= 1
        self._happens("driver", f"the driver of micro-batches dies at {where!r}")
        for process in [one for one in self._processes if not one.busy and not one.hosts]:
            self.kill(process)
        if isinstance(driver, MicroDriver):
            driver.dead = True
            self.group.leave(driver)
        self.micro = None

    def start_twin(self) -> None:
        attempt: Attempt | None = self._stack[-1][1]
        if attempt is not None:
            super().start_twin()
