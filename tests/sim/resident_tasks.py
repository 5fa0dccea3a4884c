"""Resident tasks in the simulator: processes that stay, their links, and the driver's part.

Each process hosts one `ResidentLoop`, which is stepped.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamrt.errors import StreamRTError
from streamrt.event_time.cut_requests import CutRequests
from streamrt.models import TopicPartition
from streamrt.runs.start_positions import Start
from streamrt.runtime.link_messages import (
    Ack,
    AssignmentRequest,
    BatchDone,
    Committed,
    CutDone,
    CutRequest,
    Delivered,
    Failed,
    FromTask,
    Joined,
    LinkClosed,
    Opened,
    Settle,
    Settled,
    StartPositions,
    Stop,
    ToTask,
    Welcome,
)
from streamrt.runtime.resident.loop import ResidentLoop, ResidentSettings
from streamrt.runtime.tasks.faults import InjectedFaultError
from streamrt.runtime.topic_identity import InputIdentity
from tests.sim.app import OTHER, SOURCE
from tests.sim.clients import Crash
from tests.sim.cuts import merge_cuts
from tests.sim.driver import find_start
from tests.sim.feed import SimFeed, SimPool
from tests.sim.group import SimMember
from tests.sim.incremental import IncrementalGroup, IncrementalMember
from tests.sim.simulation import Process

if TYPE_CHECKING:
    from tests.sim.resident import ResidentSimulation
    from tests.sim.stores import Machine


class SimLink:
    """Implements `Link`: two queues, and a driver that works at the other end whenever it is waited for."""

    def __init__(self, sim: "ResidentSimulation", process: Process, driver: "ResidentDriver") -> None:
        self._sim = sim
        self._process = process
        self._driver = driver
        self.inbox: deque[ToTask] = deque()
        self.outbox: deque[FromTask] = deque()
        self.closed = False
        self.slot = 0
        # The last request that was sent, and the one that the task has fulfilled.
        self.told = self.settled = Settle(0)

    def __str__(self) -> str:
        return self._process.name

    def send(self, message: FromTask) -> None:
        if isinstance(message, Opened):
            # No one here waits for a start to be over, and it changes nothing.
            return
        self._sim.step(self._process, "send")
        if self.closed:
            raise LinkClosed
        if isinstance(message, Settled) and message.number == self.told.number:
            self.settled = self.told
            self._sim.counts.events["settled"] = self._sim.counts.events.get("settled", 0) + 1
        self.outbox.append(message)

    def receive(self, timeout_s: float = 0.0) -> Sequence[ToTask]:
        sim, rng = self._sim, self._sim.rng
        sim.step(self._process, "receive")
        if not self.inbox and timeout_s > 0:
            sim.wait(timeout_s)
            if sim.calm or rng.random() < 0.7:
                self._driver.serve(self)
        if self.closed and not self.inbox:
            raise LinkClosed
        count = len(self.inbox) if sim.calm else rng.randint(0, len(self.inbox))
        return [self.inbox.popleft() for _ in range(count)]


class Answers:
    """Sends the answers of the driver to a task."""

    def __init__(self, link: SimLink) -> None:
        self._link = link

    def send(self, message: CutDone) -> None:
        self._link.inbox.append(message)


class ResidentDriver:
    """The driver's part of resident tasks: tells where to begin, takes reports, deletes what is processed.

    Args:
        sim: the world.
    """

    def __init__(self, sim: "ResidentSimulation") -> None:
        self._sim = sim
        self.links: list[SimLink] = []
        self.dead = False
        self.stopping = False
        self.run_request = Settle(0)
        self._cuts = merge_cuts(sim, sim.meanwhile)
        self._cut_requests = CutRequests(self._cuts)
        self._is_cutting = False
        self._own: dict[SimLink, frozenset[TopicPartition]] = {}

    def want(self, paused: frozenset[str]) -> None:
        """Have all tasks commit, and pause some topics."""
        self.run_request = Settle(self.run_request.number + 1, paused)
        for link in self.links:
            self.tell(link)

    def tell(self, link: SimLink) -> None:
        """Tell a task what is wanted."""
        link.told = self.run_request
        link.inbox.append(self.run_request)

    def serve(self, link: SimLink) -> None:
        """Take what a task has sent, or some of it."""
        count = len(link.outbox) if self._sim.calm else self._sim.rng.randint(0, len(link.outbox))
        for _ in range(count):
            if self.dead or not link.outbox:
                return
            self._take(link, link.outbox.popleft())
        if self._cut_requests.open and not self.dead and not self._is_cutting:
            self._is_cutting = True
            try:
                self._cut_requests.carry_on(working=True)
            finally:
                self._is_cutting = False

    def stop(self, discard: bool) -> None:
        """Tell all tasks to end."""
        self.stopping = True
        for link in self.links:
            link.inbox.append(Stop(discard))

    def gone(self, link: SimLink) -> None:
        """Hear that a task is gone."""
        if link in self.links:
            self.links.remove(link)

    def die(self) -> None:
        """Leave the tasks to themselves."""
        self.dead = True
        for link in self.links:
            link.closed = True

    def begin(self, link: SimLink, wanted: AssignmentRequest) -> Start:
        """Return where a task begins in the partitions that are new to it."""
        return find_start(self._sim, sorted(wanted.assigned - wanted.kept))

    def _take(self, link: SimLink, message: FromTask) -> None:
        sim = self._sim
        if isinstance(message, CutRequest):
            self._cut_requests.add(Answers(link), message)
        elif isinstance(message, Delivered):
            self._cuts.note(message.positions)
        elif isinstance(message, AssignmentRequest):
            self._own[link] = message.assigned
            self._cuts.assign(frozenset[TopicPartition]().union(*(self._own.get(each, ()) for each in self.links)))
            start = self.begin(link, message)
            link.inbox.append(
                StartPositions(
                    message.generation,
                    start.positions,
                    start.initial_offsets,
                    start.stateful,
                    start.metadata,
                    start.claims,
                    start.sent,
                    kept=message.kept,
                )
            )
            sim.note(f"{link} begins at {start.positions}, {start.initial_offsets} of them are committed before")
            if message.kept:
                sim.note(f"{link} goes on with {sorted(message.kept)}")
                sim.counts.events["kept"] = sim.counts.events.get("kept", 0) + 1
        elif isinstance(message, BatchDone):
            report = message.report
            trouble = "" if report.failure is None else report.failure.message
            sim.note(f"{link} reports {[f'{place} {done.end}' for place, done in report.ranges.items()]} {trouble}")
            sim.checks.failure(report)
            sim.driver_dies(self, "report")
            if not self.dead:
                sim.take(report)
                link.inbox.append(Ack(message.number))
                if report.failure is not None:
                    self.stop(sim.rng.random() < 0.5)
        elif isinstance(message, Committed):
            for place, offset in message.offsets.items():
                if place.topic not in (SOURCE, OTHER) and sim.rng.random() < 0.3:
                    sim.broker.delete_records(place, offset)
        elif isinstance(message, Failed):
            sim.refuse(message.error)


class Resident:
    """A process that hosts a resident task.

    Args:
        sim: the world.
        driver: whose task it is.
        machine: where it runs.
        slot: its number.
    """

    def __init__(self, sim: "ResidentSimulation", driver: ResidentDriver, machine: "Machine", slot: int) -> None:
        rng = sim.rng
        self._sim = sim
        self.driver = driver
        self.process = sim.new_process(machine, SimPool() if rng.random() < 0.5 else None)
        self.process.hosts = True
        self.slot = slot
        self.ended = self.frozen = False
        self.link = SimLink(sim, self.process, driver)
        self.link.slot = slot
        driver.links.append(self.link)
        settings = ResidentSettings(
            slot,
            0,
            rng.choice((0.005, 0.05, 0.5)),
            rng.choice((0, 0, 1, 3)),
            rng.choice((0.001, 0.01, 0.1)),
        )
        tasks = self.process.tasks
        identity = InputIdentity(tasks.clients.topic_ids, tasks.spec.topic_ids, clock=sim.seconds)
        feed = SimFeed(sim, self.process, identity.doubt)
        self.task = ResidentLoop(tasks, feed, self._join, self.link, settings, clock=sim.seconds, identity=identity)
        self.link.outbox.append(Joined(slot))
        self.link.inbox.append(Welcome())
        if driver.run_request.number:
            driver.tell(self.link)
        self.member.start()
        sim.group.join(self)

    def __str__(self) -> str:
        return self.process.name

    def _join(self, on_revoke: Any, on_lost: Any) -> SimMember:
        sim, group = self._sim, self._sim.group
        self.member: SimMember
        if isinstance(group, IncrementalGroup):
            self.member = IncrementalMember(sim, self.process, on_revoke, on_lost, group, self)
        else:
            self.member = SimMember(sim, self.process, on_revoke, on_lost, lambda: group.join(self))
        return self.member

    @property
    def alive(self) -> bool:
        return not self.ended

    def step(self) -> bool:
        """Let the task work for a moment; return whether it can go on."""
        if self.ended:
            return False
        begun = self._sim.broker.now - self._sim.answering_ms
        try:
            with self._sim.acts(self):
                self.task.step()
            self._sim.check_step(self, begun)
        except Crash:
            self._gone()
        except (LinkClosed, InjectedFaultError):
            self._end()
        except StreamRTError as error:
            self._sim.refuse(error)
            self._end()
        else:
            if self.task._stop is not None:
                self._end()
        return not self.ended

    def _end(self) -> None:
        """Do what the task does at its end: commit if it was told to stop, and close everything."""
        if self.task._stop is None:
            self.link.closed = True
            self.link.inbox.clear()
        try:
            with self._sim.acts(self):
                # There is a Stop or no link: it goes on with its end.
                self.task.run()
        except (Crash, LinkClosed, InjectedFaultError):
            pass
        except StreamRTError as error:
            self._sim.refuse(error)
        for message in self.link.outbox:
            if isinstance(message, Failed):
                self._sim.refuse(message.error)
        self._gone()

    def _gone(self) -> None:
        self.ended = True
        self.task._membership._closing.set()
        self.task._membership._drained.set()
        if not self.process.dead:
            self._sim.kill(self.process)
        self._sim.group.leave(self)
        if self in self._sim.residents:
            self._sim.residents.remove(self)
        self.driver.gone(self.link)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.member.owned

    def give_back(self, places: frozenset[TopicPartition]) -> None:
        self.member.revoke(self.task._membership, places, self.step)

    def evict(self) -> None:
        self.member.evicted = True

    def freeze(self) -> None:
        self.halt()
        self.evict()

    def halt(self) -> None:
        self.frozen = True

    def assign(self, places: frozenset[TopicPartition]) -> None:
        self.member.assign(places)
