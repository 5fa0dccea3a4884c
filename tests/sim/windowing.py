"""The world of windows by watermark in the simulator: event time as the driver has it, with the real `EventTime`."""

import random
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

import streamrt.runs.time_requests as requests_module
from streamrt.event_time.event_time import EventTime, StepClock
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.models import TopicPartition
from streamrt.runs.start_positions import Start
from streamrt.runs.time_requests import TimeRequests
from streamrt.runtime.link_messages import AssignmentRequest, BatchDone, FromTask, ProgressUpdate, Time
from streamrt.runtime.report import Report
from streamrt.runtime.sent import sent_times
from streamrt.topology import TaskId
from tests.sim.app import COPY, GROUP, OUT, SOURCE, Setup
from tests.sim.checks import Checks
from tests.sim.driver import Wrong
from tests.sim.resident import ResidentSimulation
from tests.sim.resident_tasks import ResidentDriver, SimLink
from tests.sim.simulation import Faults, replaced
from tests.sim.stores import Machine
from tests.sim.windows import LAST, Window, result_of, windows_of

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

_REMIND_S = 1.0


class SimAdmin:
    """Answers of Kafka to `TimeRequests`."""

    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim

    def offset_bounds(
        self, partitions: Collection[TopicPartition], *, timeout: float, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, tuple[int, int]]:
        if self._sim.trouble("ends", 0.3):
            raise KafkaRequestError("injected: no ends", retriable=True)
        logs = {place: self._sim.broker.logs[place] for place in partitions}
        committed = isolation_level == "read_committed"
        return {place: (log.low, log.stable if committed else log.end) for place, log in logs.items()}

    def committed_now(
        self, group: str, partitions: Collection[TopicPartition], *, timeout: float
    ) -> dict[TopicPartition, CommittedOffset]:
        return {place: CommittedOffset(*self._sim.broker.offsets.get(place, (None, None))) for place in partitions}


class SimTime:
    """The clock of `TimeRequests`."""

    def __init__(self, sim: "Simulation") -> None:
        self.monotonic = sim.seconds
        self.time_ns = time.time_ns


@dataclass
class Slot:
    """A task of Spark as the driver knows it, as in `WorkerHandle`."""

    link: SimLink
    assigned: frozenset[TopicPartition] | None = None
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    times: Time = field(default_factory=lambda: Time({}, frozenset()))
    reminded: dict[TaskId, float] = field(default_factory=dict)
    rewinds: int = 0


class TimedDriver(ResidentDriver):
    """The driver with event time, as `ResidentCoordinator` has it.

    Args:
        sim: the world.
    """

    def __init__(self, sim: "WindowSimulation") -> None:
        super().__init__(sim)
        self._world = sim
        topology = sim.spec.topology
        self._time = EventTime(topology, dict.fromkeys(topology.sources, sim.partitions))
        self._clock = StepClock()
        admin: Any = SimAdmin(sim)
        self._requests = TimeRequests(admin, GROUP, topology)
        self._slots: dict[int, Slot] = {}

    def tick(self) -> None:
        """Let event time go on, as `ResidentCoordinator.tick` does."""
        event_time, now = self._time, self._world.seconds()
        slots = [self._slots.get(link.slot) for link in self.links]
        if self.dead or not slots or any(slot is None or slot.assigned is None for slot in slots):
            return
        event_time.elapse(self._clock.step(now))
        watermarks, due = event_time.watermarks(), event_time.due(0)
        known = Time(watermarks, frozenset(due), event_time.end.due, event_time.others(), event_time.ahead())
        for slot in self._slots.values():
            own = self._tasks(slot.positions)
            new = {task for task in own & due if now - slot.reminded.get(task, -1e9) >= _REMIND_S}
            times = known.of(own)
            if slot.link in self.links and (new or times != slot.times):
                slot.times = times
                slot.reminded.update(dict.fromkeys(new, now))
                slot.link.inbox.append(replace(times, due=frozenset(new), rewinds=slot.rewinds))
        barrier = self._requests.barrier(event_time)
        foreign = self._requests.foreign(event_time)
        ends = None if barrier is None else self._requests.ends(barrier)
        peers = self._requests.peers(foreign) if foreign else {}
        if barrier is not None and ends is not None:
            event_time.add_barrier(barrier, ends)
        event_time.peers({task: peer for task, peer in peers.items() if task in event_time.foreign_tasks()})

    def begin(self, link: SimLink, wanted: AssignmentRequest) -> Start:
        if link not in self.links or any(each.slot == link.slot for each in self.links[self.links.index(link) + 1 :]):
            # Another attempt has replaced it, and `ResidentCoordinator` hears nothing more of it.
            return super().begin(link, wanted)
        slot = self._slots.get(link.slot)
        if slot is None or slot.link is not link:
            positions = {} if slot is None else slot.positions
            slot = self._slots[link.slot] = Slot(link, positions=positions)
        slot.assigned = wanted.assigned
        self._time.note_owner(link.slot, self._tasks(wanted.assigned))
        self._time.assign(self._tasks(place for each in self._slots.values() for place in each.assigned or ()))
        self._time.restart(self._tasks(wanted.assigned - wanted.kept))
        start = super().begin(link, wanted)
        kept = {place: at for place, at in slot.positions.items() if place in wanted.kept}
        slot.positions = {**kept, **start.positions}
        self._ready()
        self._time.begin(start.positions)
        self._time.report({}, sent_times(start.sent))
        slot.times = slot.times.of(self._tasks(kept))
        return start

    def gone(self, link: SimLink) -> None:
        super().gone(link)
        slot = self._slots.get(link.slot)
        if slot is not None and slot.link is link:
            self._time.note_owner(link.slot, ())
        self._ready()

    def _ready(self) -> None:
        alive = [slot for slot in self._slots.values() if slot.link in self.links]
        self._time.ready(self._tasks(place for slot in alive for place in slot.positions))

    def _take(self, link: SimLink, message: FromTask) -> None:
        slot = self._slots.get(link.slot)
        if slot is not None and slot.link is link and isinstance(message, BatchDone | ProgressUpdate):
            self._note(slot, message.report)
            if isinstance(message, ProgressUpdate):
                own = self._owned_by(slot)
                if message.rewound:
                    self._time.restart(message.rewound & own)
                    slot.rewinds = message.rewinds
                    slot.times = slot.times.of(self._tasks(slot.positions) - message.rewound)
                if message.ended is not None:
                    self._time.at_end(message.ended, own & self._tasks(slot.positions))
                self._time.record_positions(message.positions, own)
        super()._take(link, message)

    def _note(self, slot: Slot, report: Report) -> None:
        self._time.record_report(report, self._owned_by(slot))
        for task, _ in report.times:
            slot.reminded.pop(task, None)

    def _owned_by(self, slot: Slot) -> set[TaskId]:
        return self._time.owned_by(slot.link.slot, self._tasks(slot.assigned or ()))

    def _tasks(self, places: Any) -> set[TaskId]:
        return {self._world.spec.topology.task(place) for place in places}


class WindowChecks(Checks):
    """Each window has all of its records, and exactly once it comes once, and so does its copy."""

    def durable(self, offsets: Mapping[TopicPartition, int]) -> None:
        super().durable({place: at for place, at in offsets.items() if place.topic == SOURCE})

    def outputs(self, *, final: bool = False) -> None:
        expected, found, copied = self._expected(), self._results(OUT), self._results(COPY)
        exactly = self._sim.setup.transactional
        for window, counts in found.items():
            if exactly and counts != [expected[window]]:
                raise Wrong(f"window {window} has come with {counts} records, and has {expected[window]}")
        if exactly and any(counts != found.get(window) for window, counts in copied.items()):
            raise Wrong(f"the copies {copied} are not those of {found}")
        if final and not self.complete():
            missing = {window: count for window, count in expected.items() if max(found.get(window, [0])) < count}
            raise Wrong(f"the windows {missing} are missing, and {found} have come")

    def complete(self) -> bool:
        """Return whether all windows have come, and their copies."""
        found, copied = self._results(OUT), self._results(COPY)
        return all(
            max(found.get(window, [0])) >= count and window in copied for window, count in self._expected().items()
        )

    def state(self) -> None:
        """All stores can be restored, from nothing, and as they lie on disks."""
        positions = {place: self._sim.broker.offsets[place][0] for place in self._sim.inputs}
        for machine in (*self._sim.machines, Machine(len(self._sim.machines))):
            self._restore_all(machine, positions)

    def _expected(self) -> Counter[Window]:
        records = (entry for log in self._logs(SOURCE) for entry in log.history())
        return windows_of(records, held=self._sim.setup.held)

    def _results(self, topic: str) -> dict[Window, list[int]]:
        found: dict[Window, list[int]] = {}
        for log in self._logs(topic):
            for window, count in map(result_of, log.history()):
                found.setdefault(window, []).append(count)
        return found


class WindowSimulation(ResidentSimulation):
    """A world with windows by watermark behind a `group_by`, whose results the application reads again.

    Args:
        held: whether the watermark stands still while all partitions are idle; decided by the seed if it is not given.
    """

    mode = "resident-windows"

    def __init__(
        self,
        seed: int,
        setup: Setup | None = None,
        faults: Faults | None = None,
        mutant: str = "",
        transactional: bool = True,
        held: bool | None = None,
    ) -> None:
        own = random.Random(f"windows {seed}")
        hold = own.random() < 0.5 if held is None else held
        setup = setup or Setup(transactional, True, True, False, windowed=True, held=hold)
        super().__init__(seed, setup, faults, mutant, mixed=False)
        # The watermark is that of the last records, so that all other windows close.
        for number in range(self.partitions):
            value = orjson.dumps({"u": len(self.homes) + 1, "g": "last"})
            self.homes[len(self.homes) + 1] = place = TopicPartition(SOURCE, number)
            self.broker.append(place, b"last", value, LAST)

    def new_driver(self) -> ResidentDriver:
        return TimedDriver(self)

    def new_checks(self) -> Checks:
        return WindowChecks(self)

    def _run(self) -> None:
        with replaced(requests_module, "time", SimTime(self)):
            super()._run()

    def _turn(self) -> None:
        super()._turn()
        driver = self.resident_driver
        if isinstance(driver, TimedDriver) and (self.calm or self.rng.random() < 0.3):
            driver.tick()

    def _left(self) -> bool:
        checks = self.checks
        assert isinstance(checks, WindowChecks)
        return super()._left() or not checks.complete()
