"""One simulated run: an application, the faults that a seed asks for, and what must hold whatever happens."""

import contextlib
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

import streamrt.runtime.tasks.chain.collector as collector_module
import streamrt.runtime.tasks.faults as faults_module
from streamrt.errors import SinkBackpressureError
from streamrt.kafka.partitioner import partition_for
from streamrt.models import TopicPartition
from streamrt.runtime.driver.starting.group_layout import input_positions
from streamrt.runtime.layout_record import LAYOUT_PARTITIONS
from streamrt.runtime.report import Report
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.faults import InjectedFaultError
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.topology import TaskId
from tests.sim.app import (
    OTHER,
    SOURCE,
    Paced,
    Setup,
    SimDatabase,
    SimSink,
    TransactionalSimSink,
    WholeSimSink,
    changelogs,
    specification,
)
from tests.sim.broadcast_checks import BroadcastChecks
from tests.sim.broker import LAYOUT, Broker
from tests.sim.calls import simulated_calls
from tests.sim.checks import Checks
from tests.sim.clients import Crash, SimClients
from tests.sim.deriving_checks import DerivedChecks
from tests.sim.driver import Attempt, Driver, Wrong, fence
from tests.sim.joining import JoinChecks
from tests.sim.meeting import key_of
from tests.sim.relating_checks import TableChecks
from tests.sim.stores import Content, Machine, ProcessCatalog
from tests.sim.viewing_checks import ViewChecks

_TRACED = 80
_ROUNDS = 400
_WEEK_MS = 7 * 24 * 60 * 60 * 1_000
_DEPTH = 2


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give a module or a class another attribute for a while."""
    former = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, former)


class Violation(AssertionError):  # noqa: N818 - what is violated is an invariant
    """Something was wrong; tells the seed."""


@dataclass(eq=False)
class Process:
    """A process that runs tasks, on a machine."""

    name: str
    machine: Machine
    clients: Any = None
    tasks: Any = None
    dead: bool = False
    busy: bool = False
    hosts: bool = False
    """Whether it hosts a resident task."""
    attempt: str = ""
    stores: list[Any] = field(default_factory=list)
    """The store partitions that it has opened."""


@dataclass
class Faults:
    """Things that go wrong.

    Attributes:
        rate: how likely, at each step.
        zombies: whether rivals start while a task is suspended, which goes on later.
        planned: called with the process and the name of each step; does what a test asks for.
    """

    rate: float = 0.0
    zombies: bool = True
    planned: Callable[[Process, str], None] | None = None
    left: int = 30


@dataclass
class Counts:
    """Counts of what happened."""

    steps: int = 0
    attempts: int = 0
    waits: int = 0
    events: dict[str, int] = field(default_factory=dict)


class Simulation:
    """A world with a cluster, machines, processes and a driver.

    Args:
        seed: decides everything.
        setup: what the application has; decided by the seed if it is not given.
        faults: what goes wrong; decided by the seed if it is not given.
        mutant: name of a deliberate mistake in the simulated clients, for tests of the simulator.
        transactional: the guarantee, if the seed shall decide the rest.
        sinks: whether the seed may ask for a sink.
        pauses: whether callers of the application pause and resume topics; decided by the seed if it is not given.
        forgets: whether Kafka forgets the offsets of the group before the last run of an application with state.
        late_requests: whether records of a transaction that was given up arrive in the next one of the same producer.
    """

    mode = "micro-batch"
    brings_late_records = False
    """Whether records come while frames meet: micro-batches wait only for what was there when they began."""

    def __init__(
        self,
        seed: int,
        setup: Setup | None = None,
        faults: Faults | None = None,
        mutant: str = "",
        transactional: bool | None = None,
        sinks: bool = True,
        pauses: bool | None = None,
        forgets: bool = False,
        late_requests: bool = False,
    ) -> None:
        self.late_requests = late_requests
        self.late = random.Random(f"late {seed}")
        rng = self.rng = random.Random(seed)
        self.seed = seed
        self.mutant = mutant
        drawn = Setup(rng.random() < 0.7, rng.random() < 0.8, rng.random() < 0.4, rng.random() < 0.4)
        # Of its own random numbers, so that all other seeds stay what they were.
        if not drawn.grouped and random.Random(f"merged {seed}").random() < 0.4:
            drawn = replace(drawn, merged=True)
        own = random.Random(f"sink {seed}")
        if sinks and own.random() < 0.25:
            drawn = replace(drawn, sink=own.choice((SimSink, WholeSimSink)))
        # Again.
        if sinks and drawn.sink is None and random.Random(f"transactional sink {seed}").random() < 0.5:
            drawn = replace(drawn, sink=TransactionalSimSink)
        if transactional is not None:
            drawn = replace(drawn, transactional=transactional)
        self.setup = setup or drawn
        rate = rng.choice((0.003, 0.01, 0.02, 0.04))
        self.faults = faults or Faults(rate, self.setup.transactional or rng.random() < 0.4, None, rng.randint(1, 30))
        self.partitions = 2 if self.setup.grouped else rng.choice((1, 2, 2, 3))
        meets = self.setup.joining or self.setup.relating or self.setup.deriving or self.setup.viewing
        if self.setup.broadcasting or meets:
            # With one, there is no topic of copies.
            self.partitions = max(2, self.partitions)
        self.largest = rng.choice((2, 4, 8, 30))
        self.spec = specification(self.setup, self.partitions)
        self.forgets = forgets and any(map(self.spec.topology.stores, self.spec.topology.scopes))
        if self.forgets:
            self.spec = replace(self.spec, positions=input_positions(self.spec, LAYOUT))
        self._pickled = self.spec.dumps() if self.setup.has_own_objects else b""
        self.changelogs = changelogs(self.spec)
        topics = dict.fromkeys((*self.setup.sources, *self.changelogs.values()), self.partitions)
        for topic in self.setup.sources:
            topics.update({sink: topics.get(sink, 2) for sink in self.setup.sinks(topic)})
        self.broker = Broker(rng, {**topics, LAYOUT: LAYOUT_PARTITIONS}, fencing=mutant != "fencing")
        self.inputs = [
            TopicPartition(topic, number) for topic in self.setup.sources for number in range(self.partitions)
        ]
        self.tasks = [TaskId(stream, number) for stream in self.setup.streams for number in range(self.partitions)]
        self.machines = [Machine(number) for number in range(rng.choice((1, 2, 3)))]
        self.objects: dict[Path, Content] = {}
        """The snapshots in the object store."""
        self.calm = True
        self.ended = False
        """Whether the inputs have ended, so that all timers fire."""
        self.counts = Counts()
        self.checks = self.new_checks()
        if isinstance(self.checks, JoinChecks):
            self.broker.arrivals = self.checks.arrived
        self.trace: list[str] = []
        # Of their own random numbers, as above.
        self.fatal = random.Random(f"fatal {seed}")
        self._retention = random.Random(f"retention {seed}")
        self.deletions = self._retention.choice((0.0, 0.0, 0.02, 0.1))
        self.growth = random.Random(f"growth {seed}")
        # State depends on the number of partitions, and merges on which records are there.
        alone = not (self.setup.stateful or self.setup.grouped or self.setup.has_several_inputs)
        self._additions = self.growth.choice((0, 1, 2)) if alone else 0
        self._latecomers = random.Random(f"latecomers {seed}")
        late = self.setup.broadcasting or (self.setup.joining and self.brings_late_records)
        self._waves = self._latecomers.randint(1, 5) if late else 0
        """How often more records come."""
        slow = random.Random(f"pause {seed}")
        self.slow_ms = slow.choice((0,) * 14 + (100, 1_000))
        """How long functions take for a record."""
        self._pauser = random.Random(f"pauses {seed}")
        self._pauses = self._pauser.random() < 0.3 if pauses is None else pauses
        self.paused: frozenset[str] = frozenset()
        """The topics that callers have paused."""
        self.homes: dict[int, TopicPartition] = {}
        """Where each record was written."""
        self.values: dict[int, tuple[str, int]] = {}
        """The group and the time of each record."""
        self.offsets: dict[int, int] = {}
        self.sunk: list[tuple[TopicPartition, int]] = []
        """Records that sinks have written: inputs with offsets."""
        self.database = SimDatabase()
        """Values and positions that transactional sinks have written."""
        self._processes: list[Process] = []
        self._homes: dict[TaskId, Machine] = {}
        self._stack: list[tuple[Process, Attempt | None]] = []
        self._input(rng, rng.randint(3, 30))
        if self.slow_ms:
            self._input(slow, slow.randint(0, 30))
        self.driver = Driver(self)

    def new_checks(self) -> Checks:
        """Return what must hold of the application."""
        if self.setup.joining:
            return JoinChecks(self)
        if self.setup.relating:
            return TableChecks(self)
        if self.setup.deriving:
            return DerivedChecks(self)
        if self.setup.viewing:
            return ViewChecks(self)
        return BroadcastChecks(self) if self.setup.broadcasting else Checks(self)

    # -- The run -------------------------------------------------------------------------------------------------

    def run_to_end(self) -> None:
        """Run with faults, and then without until everything is processed; check all the way.

        Raises:
            Violation: with the seed and the last steps, if something was wrong.
        """
        try:
            with (
                replaced(faults_module, "reached", self._reached),
                replaced(Paced, "pause", self.pause),
                # Time passes here in jumps: either no limit stops timers that are due, or each of them is a portion.
                replaced(collector_module, "_PORTION_S", -1.0 if self.setup.expanding else float("inf")),
                simulated_calls(self) if self.setup.asynchronous else contextlib.nullcontext(),
            ):
                self._run()
        except (Exception, Wrong) as error:
            kind = "exactly-once" if self.setup.transactional else "at-least-once"
            trace = "\n".join(self.trace[-_TRACED:])
            replay = f"python -m tests.sim --mode {self.mode} --seed {self.seed}"
            if self.setup.asynchronous:
                replay += f" --asynchronous {kind}"
            if self.setup.joining:
                replay += f" --joining {self.setup.joining}-{kind}"
            if self.setup.relating:
                replay += f" --relating {self.setup.relating}-{kind}"
            if self.setup.deriving:
                replay += f" --deriving {self.setup.deriving}-{kind}{' --expanding' if self.setup.expanding else ''}"
            if self.setup.viewing:
                replay += f" --viewing {self.setup.viewing}-{kind}"
            if self.setup.broadcasting:
                replay += f" --broadcasting {kind}"
            if self.setup.processing:
                replay += f" --processing {kind}{' --expanding' if self.setup.expanding else ''}"
            raise Violation(
                f"seed {self.seed} ({kind}): {type(error).__name__}: {error}\nreplay: {replay}\nthe last steps:\n{trace}"
            ) from error

    def _run(self) -> None:
        self.calm = False
        for _ in range(_ROUNDS):
            if self._cycle(self.rng.randint(1, 4)) and (self.faults.left <= 0 or self.rng.random() < 0.05):
                break
            self.checks.outputs()
        self._finish()

    def _finish(self) -> None:
        """Run a last driver without faults, on machines as they are, and check everything."""
        self._process_all()
        self._check_all()

    def _forget_offsets(self) -> None:
        """Have Kafka forget the offsets of the group, as it does a week after its last member has left."""
        for process in [one for one in self._processes if not one.busy]:
            self.kill(process)
        for place in self.inputs:
            fence(self, place)
        self.broker.now += _WEEK_MS
        self.broker.offsets.clear()
        self._happens("forgotten", "the offsets of the group are forgotten")

    def _process_all(self) -> None:
        """Process and commit what there is, without faults."""
        if self.forgets:
            self._forget_offsets()
        self.note("calm")
        self.calm = True
        self.paused = frozenset()
        self.driver = Driver(self)
        for _ in range(_ROUNDS):
            finished = self._cycle(10)
            self.broker.wait(1)
            if finished and not any(
                any(self.broker.logs[place].read(self.driver.positions[place], 1 << 62)) for place in self.inputs
            ):
                break
        else:
            raise Wrong("the application does not get to the end")
        self.driver.commit()

    def _check_all(self) -> None:
        """Check outputs and state; nothing may be done afterwards, since the check of state takes all changelogs over."""
        self.checks.outputs(final=True)
        self.checks.state()
        if left := self.broker.open_transactions():
            raise Wrong(f"transactions were left open: {left}")

    def _cycle(self, batches: int) -> bool:
        """Run a query for some batches; return whether it ended by itself."""
        driver = self.driver
        if not driver.start():
            return False
        for _ in range(batches):
            if driver.replaced:
                return False
            if not driver.batch() or driver.replaced:
                return False
            if self.rng.random() < 0.3:
                driver.idle()
                if self.rng.random() < 0.5:
                    driver.purge()
            self.surroundings()
            self._run_request()
        if not driver.replaced:
            driver.commit()
        return True

    def want(self, paused: frozenset[str]) -> None:
        """Have the driver commit and pause some topics, and resume all others."""
        self._happens("pause" if paused else "resume", f"a pause of {sorted(paused)} is wanted")
        self.paused = paused

    @property
    def is_pausing(self) -> bool:
        """Whether everything is to be paused, and the driver has not yet done so."""
        return bool(self.paused) and self.driver.paused != self.paused

    def _run_request(self) -> None:
        """Let callers pause and resume topics."""
        if not self._pauses or self.calm or self._pauser.random() >= 0.2:
            return
        topics = sorted(self.spec.topology.sources)
        share = self._pauser.choice((0.0, 0.4, 1.0))
        self.want(frozenset(topic for topic in topics if self._pauser.random() < share))

    def partition_of(self, key: bytes) -> int:
        """Return the partition of a key in a topic that has as many as the input."""
        return partition_for(key, self.partitions)

    def seconds(self) -> float:
        """Return the time, as tasks see it."""
        return self.broker.now / 1_000

    def _input(self, rng: random.Random, count: int) -> None:
        """Write records to the source, some in the transactions of others, which leave markers."""
        for unique in range(len(self.homes) + 1, len(self.homes) + count + 1):
            key = b"key%d" % rng.randrange(5)
            topic = rng.choice((SOURCE, OTHER)) if self.setup.has_several_inputs else SOURCE
            group = f"g{rng.randrange(3)}"
            if self.setup.joining:
                key = key_of(self.setup.joining, topic, group, key)
            place = TopicPartition(topic, partition_for(key, self.partitions))
            self.homes[unique] = place
            value: dict[str, Any] = {"u": unique, "g": group, "h": f"h{unique // 2 % 2}"}
            # Event times that are not in order.
            timestamp = 1_000 + 10 * unique + rng.randrange(-20, 20)
            if self.setup.broadcasting:
                value["broadcast"] = topic == OTHER
                # Some have the same.
                timestamp -= timestamp % 10
            self.values[unique], self.offsets[unique] = (group, timestamp), self.broker.logs[place].end
            self.broker.append(place, key, orjson.dumps(value), timestamp)
            if rng.random() < 0.15:
                self.broker.append_marker(place)

    # -- Processes -----------------------------------------------------------------------------------------------

    def process(self, task: TaskId) -> Process:
        """Return a process that is free to run a task, most often where it was before."""
        rng = self.rng
        home = self._homes.get(task)
        if home is None or rng.random() < 0.15:
            home = self._homes[task] = rng.choice(self.machines)
        free = [one for one in self._processes if one.machine is home and not one.busy and not one.hosts]
        if free and rng.random() < 0.8:
            return rng.choice(free)
        return self.new_process(home)

    def new_process(self, home: Machine, pool: Executor | None = None) -> Process:
        """Start a process on a machine."""
        process = Process(f"p{self.counts.attempts}.{len(self._processes)}@{home.number}", home)
        process.clients = SimClients(self, process)
        process.tasks = TaskExecutor(
            self._spec_of(process), process.clients, self.new_catalog(process), pool, self.seconds
        )
        self._processes.append(process)
        return process

    def new_catalog(self, process: Process) -> ProcessCatalog:
        """Return the stores of a process."""
        assert self.spec.state is not None
        return ProcessCatalog(self.spec.state, self, process)

    def _spec_of(self, process: Process) -> TaskSpec:
        """Return what a process runs: it has sinks and functions of its own, if these keep what belongs to the process."""
        if not self.setup.has_own_objects:
            return self.spec

        def step(where: str) -> None:
            self.step(process, where, lambda _: SinkBackpressureError(self.rng.choice((0.0, 0.01, 0.3))))

        spec = TaskSpec.loads(self._pickled)
        for sink in spec.topology.sinks.values():
            assert isinstance(sink, SimSink | TransactionalSimSink)
            sink.step = step
            if isinstance(sink, SimSink):
                sink.written = self.sunk
            else:
                sink.database = self.database
        return spec

    @contextlib.contextmanager
    def running(self, process: Process, attempt: Attempt | None) -> Iterator[None]:
        """Run something in a process."""
        self.counts.attempts += 1
        process.busy = True
        process.attempt = f"a{self.counts.attempts}"
        self.checks.begun(process.attempt)
        self._stack.append((process, attempt))
        try:
            yield
        finally:
            self._stack.pop()
            process.busy = False

    def run(self, attempt: Attempt) -> Report | None:
        """Run a task; return None if its process died."""
        chunk = attempt.chunks[0]
        process = self.process(self.spec.topology.task(TopicPartition(chunk.topic, chunk.partition)))
        ranges = [f"{one.topic}[{one.partition}] {one.offsets[0]}-{one.offsets[-1]}" for one in attempt.chunks]
        self.note(f"run {ranges} in {process.name}")
        try:
            with self.running(process, attempt):
                # Each attempt has a number, as Spark gives them.
                context = replace(attempt.context, attempt=self.counts.attempts)
                report: Report = process.tasks.run(attempt.chunks, context)
        except Crash:
            return None
        except InjectedFaultError:
            # A task that raises takes its process along, which ends in good order.
            self.kill(process)
            return None
        if process.tasks.spec.topology is self.spec.topology or self.setup.has_own_objects:
            # A version that is over may end as it likes.
            self.checks.failure(report)
        trouble = "".join((*report.interrupted.values(), *report.locked.values())) or (
            "" if report.failure is None else report.failure.message
        )
        ends = [f"{place} {done.end}" for place, done in report.ranges.items()]
        self.note(f"{process.name} reports {ends} {trouble}")
        return report

    def kill(self, process: Process) -> None:
        """End a process; what its clients have on the wire may arrive."""
        process.clients.die()
        process.dead = True
        for partition in list(process.stores):
            partition.close()
        self._processes.remove(process)

    # -- Faults --------------------------------------------------------------------------------------------------

    def step(self, process: Process, where: str, trouble: Callable[[str], Exception] | None = None) -> None:
        """Pass a place where a fault may happen.

        Args:
            process: who passes it.
            where: what it is about to do, or has done.
            trouble: makes the exception that may be raised here.
        """
        if process.dead:
            raise Crash
        self.counts.steps += 1
        self.broker.now += 1
        if self.faults.planned is not None:
            self.faults.planned(process, where)
        if self.calm:
            return
        if self.broker.expects and self.rng.random() < 0.05:
            self.note(f"a late request arrives before {where!r}")
            self.broker.arrive()
        if self.rng.random() >= self.faults.rate or self.faults.left <= 0:
            return
        self.faults.left -= 1
        kind = self.rng.choice(("crash", "trouble", "rival", "rival", "world", "world", "world"))
        if kind == "crash":
            self.crash(process, where)
        elif kind == "trouble" and trouble is not None:
            self._happens("trouble", f"{process.name} gets an error at {where!r}")
            raise trouble(where)
        elif kind == "rival" and self.faults.zombies:
            self.rival(process, where)
            if process.dead:
                raise Crash
        elif kind == "world":
            self.surroundings(often=True)

    def wait_for_call(self) -> None:
        """Let something go wrong while a task waits for an asynchronous call."""
        self.counts.waits += 1
        self.step(self._stack[-1][0], "wait for a call")

    def pause(self, value: dict[str, Any]) -> None:
        """Take the time that a function needs for a record; the world goes on meanwhile."""
        self._check_paused(value["u"])
        if self.slow_ms:
            self.step(self._stack[-1][0], "function")
            self.broker.wait(self.slow_ms)

    def _check_paused(self, unique: int) -> None:
        """No task processes a record of a topic that its driver has paused."""
        attempt, place = self._stack[-1][1], self.homes.get(unique)
        # Below a grouping, it is the repartition topic that counts.
        if attempt is not None and place is not None and place.topic in attempt.paused and not self.setup.grouped:
            raise Wrong(f"{self._stack[-1][0].name} processes record {unique} of {place}, which is paused")

    def trouble(self, where: str, share: float) -> bool:
        """Tell whether a request meets trouble of its own kind; more likely than other faults."""
        if self.calm or self.faults.left <= 0 or self.rng.random() >= share * self.faults.rate * 20:
            return False
        self.faults.left -= 1
        self._happens("request", f"trouble in {where}")
        return True

    def crash(self, process: Process, where: str) -> None:
        """Kill a process that is running."""
        self._happens("crash", f"{process.name} dies at {where!r}")
        self.kill(process)
        raise Crash

    def rival(self, process: Process, where: str) -> None:
        """Suspend a process, and let others work on the same records; then it goes on."""
        if len(self._stack) > _DEPTH:
            return
        attempt = self._stack[-1][1]
        if attempt is not None and self.rng.random() < 0.5:
            self._happens("twin", f"{process.name} is suspended at {where!r}, a twin of the task starts")
            self.start_twin()
        else:
            self._happens("takeover", f"{process.name} is suspended at {where!r}, another driver takes over")
            self.take_over(self.rng.random() < 0.5)
        self.note(f"{process.name} goes on at {where!r}")

    def start_twin(self) -> None:
        """Run the task that runs now in another process, to its end; if it ends well, its report counts."""
        attempt = self._stack[-1][1]
        if attempt is not None:
            report = self.run(attempt)
            if report is not None:
                attempt.twin = report

    def take_over(self, whole: bool) -> None:
        """Start another driver, and let it work for a while.

        Args:
            whole: whether it works for long.
        """
        self.driver = Driver(self)
        for _ in range(4 if whole else 1):
            self._cycle(self.rng.randint(1, 4))

    def driver_step(self, driver: Driver, where: str) -> None:
        """Pass a place where the driver may die, and its processes with it."""
        if self.calm or driver.replaced or self.faults.left <= 0 or self.rng.random() >= self.faults.rate * 4:
            return
        self.faults.left -= 1
        self._happens("driver", f"the driver dies at {where!r}")
        for process in [one for one in self._processes if not one.busy]:
            self.kill(process)
        self.driver = Driver(self)

    def surroundings(self, *, often: bool = False) -> None:
        """Let the world around move: markers, late requests, compaction, time, disks."""
        if self.calm:
            return
        rng, broker = self.rng, self.broker
        broker.write_markers()
        self._retain()
        if self._additions and self.growth.random() < 0.1:
            self.grow()
        if self._waves and self._latecomers.random() < 0.2:
            self._waves -= 1
            self._input(self._latecomers, self._latecomers.randint(1, 8))
        if not often and rng.random() < 0.5:
            return
        kind = rng.choice(("late", "late", "compact", "compact", "disk", "disk", "time"))
        if kind == "late":
            broker.arrive()
        elif kind == "compact":
            places = [place for place in broker.logs if place.topic in self.changelogs.values()]
            if places:
                broker.compact(rng.choice(places))
        elif kind == "disk":
            machine = rng.choice(self.machines)
            self.note(f"disk of machine {machine.number}: {machine.misfortune(rng, self.machines)}")
        else:
            milliseconds = rng.choice((1_000, 61_000, 61_000, 400_000, 1_300_000))
            self.note(f"{milliseconds} ms pass")
            broker.wait(milliseconds)

    def _retain(self) -> None:
        """Let retention delete input records, also those that are not processed yet.

        Of merged inputs it deletes none: the order in which they are merged depends on what is there.
        """
        if (
            self.setup.has_several_inputs
            or self.setup.windowed
            or self.setup.deriving
            or self._retention.random() >= self.deletions
        ):
            return
        place = TopicPartition(SOURCE, self._retention.randrange(self.partitions))
        log = self.broker.logs[place]
        before = self._retention.randint(log.low, log.end)
        self._happens("retention", f"retention deletes {place} below {before}")
        log.delete(before)

    def grow(self) -> None:
        """Add a partition to the input, with records that come before anybody hears of it, and some elsewhere."""
        self._additions -= 1
        place = self.broker.add_partition(SOURCE)
        self.partitions += 1
        self.inputs.append(place)
        self.tasks.append(self.spec.topology.task(place))
        self._happens("growth", f"{place} is added")
        self._input(self.growth, self.growth.randint(3, 12))

    def note(self, text: str) -> None:
        """Write a line of the trace."""
        self.trace.append("  " * len(self._stack) + text)

    def ids_for(self, topics: Collection[str], who: str) -> dict[str, str | None]:
        """Return Kafka's ids of topics, as somebody is answered who asks for them."""
        return {topic: self.broker.ids.get(topic) for topic in topics}

    def check_committer(self, who: str, offsets: Collection[TopicPartition]) -> None:
        """Hear that somebody is about to commit."""

    def doubted(self, who: str) -> None:
        """Hear that somebody has met an error after which a topic may be another one."""

    def check_batch(self, who: str) -> None:
        """Hear that a driver begins a micro-batch."""

    def before_start(self) -> None:
        """Hear that start offsets are about to be found."""

    def credit(self, offsets: Mapping[TopicPartition, int], former: Mapping[TopicPartition, int]) -> None:
        """Hear what the group has committed at least once, and where it was before."""

    def _happens(self, kind: str, text: str) -> None:
        self.counts.events[kind] = self.counts.events.get(kind, 0) + 1
        self.note(text)

    def _reached(self, point: str) -> None:
        process = self._stack[-1][0]
        self.step(process, point)
