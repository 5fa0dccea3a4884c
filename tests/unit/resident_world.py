"""A resident task in a world of its own: feed, group, driver and clock in memory. Time passes only where somebody waits."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import orjson
import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.errors import OffsetOutOfRangeError
from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.membership.group_state import GroupAssignment, GroupFencedError
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.models import TimestampType, TopicPartition
from streamrt.runtime.link_messages import (
    Ack,
    AssignmentRequest,
    BatchDone,
    CutDone,
    CutRequest,
    FromTask,
    IdleChanged,
    LinkClosed,
    ProgressUpdate,
    StartPositions,
    ToTask,
)
from streamrt.runtime.metadata import CommitMetadata
from streamrt.runtime.placement import ChangelogSettings, ScopeInfo, StateSettings
from streamrt.runtime.report import Report
from streamrt.runtime.resident.loop import ResidentLoop, ResidentSettings
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.runtime.tasks.task_clients import TransactionalRecordWriter
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.state import RocksDBOptions, State, Store, StorePartition
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import state_of
from streamrt.testing.memory import MemoryClients
from streamrt.topology import TaskId, TaskStore
from tests.support import wait_until
from tests.unit import commit_world
from tests.unit.apps import application

FIRST, SECOND = TopicPartition("in", 0), TopicPartition("in", 1)
BOTH = frozenset({FIRST, SECOND})
FIRST_TASK, SECOND_TASK = TaskId("in", 0), TaskId("in", 1)
METADATA = '{"streamrt":2,"stores":{"in":{"default":"1"}}}'
"""Metadata that is stored with the offsets of `in`."""
GUARANTEES = pytest.mark.parametrize("transactional", [False, True], ids=["at-least-once", "exactly-once"])

Message = TypeVar("Message", bound=FromTask)
Build = Callable[[Application], None]


class Clock:
    """Seconds, which go on when somebody waits."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        # Who waits for nothing gets on all the same, or a test would wait for ever.
        self.seconds += max(seconds, 0.001)


class Clients(commit_world.Clients):
    """Writes a marker to each changelog partition of a transaction, and tells whether a transaction is open."""

    def __init__(self) -> None:
        super().__init__()
        self.spent = False
        # How many writers were started at once.
        self.prepared: list[int] = []

    def prepare_writers(self, owners: Mapping[TaskId, TopicPartition]) -> None:
        self.prepared.append(len(owners))

    def kept(self, task: TaskId) -> TransactionalRecordWriter | None:
        super().kept(task)
        return Transaction(self)

    def transactional(self, task: TaskId, owner: TopicPartition) -> TransactionalRecordWriter:
        super().transactional(task, owner)
        return Transaction(self)


class Transaction(commit_world.Transaction):
    """A transaction whose producer may be spent by its commit."""

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None) -> None:
        self._clients.call("commit")
        held, self._held = self._held, []
        for record in held:
            MemoryClients.produce(self._clients, *record)
        touched = {TopicPartition(record[0], record[5]) for record in held if record[5] >= 0}
        self._clients.end_transaction(touched, offsets, metadata)
        assert isinstance(self._clients, Clients)
        if self._clients.spent:
            self.usable = False

    def abort(self) -> None:
        super().abort()
        self._held = []


class Catalog(StoreCatalog):
    """Stores in memory that count how often they are opened, and fail as told."""

    def __init__(self, settings: StateSettings, clients: Clients) -> None:
        super().__init__(settings)
        self.opened: list[int] = []
        self.destroyed = 0
        self._clients = clients

    def store(self, topic: str, spec: StoreSpec) -> Store:
        return _Disk(super().store(topic, spec), self, self._clients)


class _Disk(Store):
    def __init__(self, inner: Store, catalog: Catalog, clients: Clients) -> None:
        super().__init__(inner.name, inner.topic, Path("unused"))
        self._inner, self._catalog, self._clients = inner, catalog, clients

    def open(self, partition: int) -> StorePartition:
        if "store open" in self._clients.troubles:
            raise self._clients.troubles.pop("store open")
        self._catalog.opened.append(partition)
        return commit_world.Damaged(self._inner.open(partition), self._clients.calls, self._clients.troubles)

    def destroy(self, partition: int) -> None:
        if "store destroy" in self._clients.troubles:
            raise self._clients.troubles.pop("store destroy")
        self._catalog.destroyed += 1
        self._inner.destroy(partition)


def _nothing() -> None:
    pass


class MemoryFeed:
    """Reads lists; None in one is a marker, which is not a record but has an offset."""

    def __init__(self, clock: Clock) -> None:
        self.logs: dict[TopicPartition, list[tuple[bytes, int] | None]] = {}
        self.low: dict[TopicPartition, int] = {}
        self.troubles: list[Exception] = []
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.resumed: set[TopicPartition] = set()
        self.assigned: list[dict[TopicPartition, int]] = []
        self.closed = False
        self._clock = clock
        self._ends: dict[TopicPartition, int] = {}
        self._polls = 0
        self._actions: dict[int, Callable[[], None]] = {}

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        assert positions.keys().isdisjoint(self.positions)
        self.positions.update(positions)
        if positions:
            self.assigned.append(dict(self.positions))
        self.paused.update(positions)
        self.resumed.difference_update(positions)

    def remove(self, places: Iterable[TopicPartition]) -> None:
        going = set(places)
        for place in going:
            self.positions.pop(place, None)
            self._ends.pop(place, None)
            self.paused.discard(place)
            self.resumed.discard(place)
        if going:
            self.assigned.append(dict(self.positions))

    def poll(self, timeout_s: float, records: int) -> Sequence[tuple[TopicPartition, InputBatch]]:
        self._polls += 1
        self._actions.pop(self._polls, _nothing)()
        if self.troubles:
            raise self.troubles.pop(0)
        found = []
        changed = False
        for place in [place for place in self.positions if place not in self.paused]:
            log, at = self.logs.get(place, []), self.positions[place]
            if at < self.low.get(place, 0):
                raise OffsetOutOfRangeError(f"{place} has no offset {at} any more")
            end = at
            taken: list[tuple[int, bytes, int]] = []
            while end < len(log) and len(taken) < records:
                entry = log[end]
                if entry is not None:
                    taken.append((end, *entry))
                end += 1
            self.positions[place] = end
            if taken:
                offsets, values, times = (list(column) for column in zip(*taken, strict=True))
                kinds = [int(TimestampType.TIMESTAMP_CREATE_TIME)] * len(taken)
                found.append((place, InputBatch(offsets, [b"key"] * len(taken), values, times, kinds, None)))
                records -= len(taken)
                self._ends.pop(place, None)
            elif end == len(log) and self._ends.get(place) != end:
                self._ends[place] = end
                changed = True
            if records <= 0:
                break
        if not found and not changed:
            self._clock.wait(timeout_s)
        return found

    def seek(self, place: TopicPartition, offset: int) -> None:
        assert place in self.positions
        self.positions[place] = offset
        self._ends.pop(place, None)

    def pause(self, places: Iterable[TopicPartition]) -> None:
        self.paused.update(place for place in places if place in self.positions)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        named = set(places)
        self.resumed |= named
        self.paused -= named

    def ends(self) -> Mapping[TopicPartition, int]:
        return dict(self._ends)

    def close(self) -> None:
        self.closed = True

    def before_poll(self, number: int, action: Callable[[], None]) -> None:
        """Have something done before so many polls from now."""
        self._actions[self._polls + number] = action


class MemoryMember:
    """A member of a group whose partitions the test gives and takes."""

    def __init__(
        self,
        offsets: dict[TopicPartition, int],
        on_revoke: Callable[[frozenset[TopicPartition]], None],
        on_lost: Callable[[frozenset[TopicPartition]], None],
    ) -> None:
        self.away = False
        self.started = self.closed = False
        self.joined_again = 0
        self.offsets = offsets
        self.commits: list[dict[TopicPartition, int]] = []
        self.metadata: set[str | None] = set()
        self.troubles: list[Exception] = []
        self.current: GroupAssignment | None = None
        self.error: Exception | None = None
        self._generation = 0
        self._on_revoke, self._on_lost = on_revoke, on_lost
        # Whether the task has heard that partitions are wanted back, in the thread that tells it.
        self.asked: Callable[[], bool] = lambda: True

    def start(self) -> None:
        self.started = True

    def join_again(self) -> None:
        self.joined_again += 1

    def current_assignment(self, timeout: float) -> GroupAssignment | None:
        if self.error is not None:
            raise self.error
        return self.current

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        generation: int | None = None,
        timeout: float = 30.0,
        metadata: OffsetMetadata = None,
    ) -> None:
        if self.troubles:
            raise self.troubles.pop(0)
        current = self._owned
        if current is None or current.generation != generation or not offsets.keys() <= current.partitions:
            raise GroupFencedError("the partitions are another member's")
        self.commits.append(dict(offsets))
        self.metadata.update(metadata.values() if isinstance(metadata, Mapping) else [metadata])
        self.offsets.update(offsets)

    def close(self) -> None:
        if self.current is not None:
            self._on_revoke(self.current.partitions)
        self.current = self._owned = None
        self.closed = True

    _owned: GroupAssignment | None = None

    # -- What the group does -------------------------------------------------------------------------------------------

    def assign(
        self,
        *partitions: TopicPartition,
        unbroken: bool = False,
        held: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        self._generation += 1
        self.current = self._owned = GroupAssignment(self._generation, frozenset(partitions), unbroken, held=held)

    @contextlib.contextmanager
    def revoking(self) -> Iterator[threading.Thread]:
        """Take the partitions, which are the member's until the function that was called for it has returned."""
        assert self.current is not None
        partitions, self.current = self.current.partitions, None
        thread = threading.Thread(target=self._on_revoke, args=(partitions,))
        thread.start()
        wait_until(lambda: self.asked() or not thread.is_alive(), what="the revocation")
        try:
            yield thread
        finally:
            thread.join(60)
            self._owned = None
        assert not thread.is_alive()

    def lose(self) -> None:
        assert self.current is not None
        partitions, self.current, self._owned = self.current.partitions, None, None
        self._on_lost(partitions)


class MemoryLink:
    """The driver's part.

    Attributes:
        takes: whether reports are answered at once.
        begins: whether questions for offsets are answered at once.
        idle: told one by one, each when the task waits and nothing else is to be heard.
        initial_offsets: partitions that must be committed if the group does not know them.
    """

    def __init__(self, offsets: dict[TopicPartition, int], clock: Clock) -> None:
        self.sent: list[FromTask] = []
        self.inbox: deque[ToTask] = deque()
        self.idle: deque[ToTask] = deque()
        self.takes = self.begins = True
        self.closed = False
        self.initial_offsets: frozenset[TopicPartition] = frozenset()
        self._offsets = offsets
        self._clock = clock

    def send(self, message: FromTask) -> None:
        if self.closed:
            raise LinkClosed
        self.sent.append(message)
        if isinstance(message, AssignmentRequest) and self.begins:
            self.begin(message)
        elif isinstance(message, CutRequest):
            self.inbox.append(CutDone(message.number, message.stream, {}))
        elif isinstance(message, BatchDone) and self.takes:
            self.inbox.append(Ack(message.number))

    def begin(self, wanted: AssignmentRequest) -> None:
        positions = {place: self._offsets.get(place, 0) for place in sorted(wanted.assigned - wanted.kept)}
        initial_offsets = {
            place: at for place, at in positions.items() if place in self.initial_offsets - self._offsets.keys()
        }
        self.inbox.append(StartPositions(wanted.generation, positions, initial_offsets, kept=wanted.kept))

    def receive(self, timeout_s: float = 0.0) -> Sequence[ToTask]:
        if self.closed and not self.inbox:
            raise LinkClosed
        if not self.inbox and timeout_s > 0:
            self._clock.wait(timeout_s)
            if self.idle:
                self.inbox.append(self.idle.popleft())
        found = list(self.inbox)
        self.inbox.clear()
        return found

    def close(self) -> None:
        """Break the connection; what was sent arrives."""
        self.closed = True

    def told(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.sent if isinstance(message, kind)]


def tally(value: int, state: State) -> dict[str, int]:
    """Count in the state; what is in it shows in the output."""
    number: int = state.get("n", 0) + 1
    state.set("n", number)
    return {"v": value, "n": number}


def counting(app: Application) -> None:
    app.dataframe(app.topic("in")).apply(tally, stateful=True).to_topic(app.topic("out"))


def plain(app: Application) -> None:
    app.dataframe(app.topic("in")).to_topic(app.topic("out"))


def windows(app: Application) -> None:
    window = app.dataframe(app.topic("in")).tumbling_window(1_000).count()
    window.final(closing_strategy="watermark", idle_timeout_ms=5_000).to_topic(app.topic("out"))


class World:
    """A resident task with what it runs on.

    Args:
        build: makes the dataframes.
        transactional: whether commits are exactly-once.
        partitions: number of partitions of each topic.
        commits: settings of the task.
        collect: whether outputs are reported.
        disk: directory of stores that are on disk; without it, they are in memory.
        options: how these stores work.
        longest_absence_ms: age at which stores are restored as a whole.
        settings: of the application.
    """

    def __init__(
        self,
        build: Build = counting,
        *,
        transactional: bool = False,
        partitions: int = 2,
        commits: Mapping[str, Any] | None = None,
        collect: bool = False,
        disk: Path | None = None,
        options: RocksDBOptions | None = None,
        longest_absence_ms: int = 1 << 62,
        **settings: Any,
    ) -> None:
        guarantee: Any = "exactly-once" if transactional else "at-least-once"
        app = application(processing_guarantee=guarantee, **settings)
        build(app)
        spec = definition_of(app).task_spec(count_outputs=True, collect=collect)
        sources = {}
        for stream, topics in spec.topology.streams.items():
            logs: dict[str, ChangelogSettings | None] = {
                store.name: ChangelogSettings(f"log-{store.name}", None, longest_absence_ms)
                for store in spec.topology.stores(stream)
            }
            if logs:
                names = tuple(sorted(topics)) if len(topics) > 1 else ()
                sources[stream] = ScopeInfo(None, partitions, logs, names)
        state = StateSettings("group", disk or Path("unused"), options, sources, in_memory=disk is None)
        self.clock = Clock()
        self.clients = Clients()
        self.catalog = Catalog(state, self.clients)
        self.spec = replace(spec, state=state, commit_metadata=CommitMetadata({"in": {"default": "1"}}))
        self.tasks = TaskExecutor(self.spec, self.clients, self.catalog if disk is None else StoreCatalog(state))
        self.feed = MemoryFeed(self.clock)
        self.link = MemoryLink(self.clients.offsets, self.clock)
        self.members: list[MemoryMember] = []
        self._awaited = 0
        self.settings = ResidentSettings(3, 1, **{"transaction_interval": 5.0, **(commits or {})})
        self.task = ResidentLoop(self.tasks, self.feed, self._join, self.link, self.settings, self.clock)
        self.member.asked = self.task._membership._revoking.is_set

    def _join(self, on_revoke: Any, on_lost: Any) -> MemoryMember:
        self.members.append(MemoryMember(self.clients.offsets, on_revoke, on_lost))
        return self.members[-1]

    @property
    def member(self) -> MemoryMember:
        return self.members[-1]

    # -- What happens ------------------------------------------------------------------------------------------------

    def put(self, place: TopicPartition, *values: int | None, timestamp: int = 1_000) -> None:
        """Write records whose values are numbers; None is a marker."""
        log = self.feed.logs.setdefault(place, [])
        log += [None if value is None else (str(value).encode(), timestamp) for value in values]

    def begin(self, *partitions: TopicPartition) -> None:
        """Give the task partitions, and wait until it has opened them."""
        self.member.assign(*(partitions or BOTH))
        self.until_begun()

    def is_open(self, task_id: TaskId) -> bool:
        """Return whether a task is assigned, and its stores are open."""
        task = self.tasks.assigned.get(task_id)
        return task is not None and task.is_open

    def until_begun(self) -> None:
        """Step until all that is assigned is open."""
        current = self.member.current
        assert current is not None
        self.until(lambda: self.task._membership.assignment == current and self.task._answered)
        self.until(lambda: current.partitions == self.feed.positions.keys() == self.feed.resumed)

    def steps(self, count: int = 1) -> None:
        for _ in range(count):
            self.task.step()

    def until(self, condition: Callable[[], object], most: int = 300) -> None:
        """Step until a condition holds."""
        for _ in range(most):
            if condition():
                return
            self.task.step()
        raise AssertionError(f"it did not come to it in {most} steps; told: {self.link.sent[-5:]}")

    def commit(self) -> Report:
        """Step until there is another report than those before, and until its answer has arrived."""
        self._awaited += 1
        self.until(lambda: len(self.reports) >= self._awaited)
        self.steps()
        return self.reports[self._awaited - 1]

    def revoke(self) -> None:
        """Take all partitions, in good order; the group has not shared them out again at that point."""
        with self.member.revoking():
            while self.task._membership.revocation_pending:
                self.task.step()

    def let_go(self) -> None:
        """Take all partitions, and have the group give them to others."""
        self.revoke()
        self.member.assign()
        self.until(lambda: self.task._membership.assignment == self.member.current)

    # -- What came of it -----------------------------------------------------------------------------------------------

    @property
    def reports(self) -> list[Report]:
        return [worked.report for worked in self.link.told(BatchDone)]

    @property
    def quiet(self) -> list[bool]:
        return [message.quiet for message in self.link.told(IdleChanged)]

    def outputs(self, topic: str = "out") -> list[int]:
        return [int(record.value or b"") for record in self.clients.written(topic)]

    def counts(self, topic: str = "out") -> list[tuple[int, int]]:
        """Return value and number of each output of `tally`."""
        found = [orjson.loads(record.value or b"") for record in self.clients.written(topic)]
        return [(item["v"], item["n"]) for item in found]

    def counted(self, partition: int = 0) -> int:
        """Return what the state of a partition says, which also shows that no one holds the store."""
        place, task = TopicPartition("in", partition), TaskId("in", partition)
        stores = TaskStores(
            self.catalog, {"default": TaskStore("in", StoreSpec())}, task, self.clients, transactional=False
        )
        stores.open({place: len(self.feed.logs.get(place, ()))}, stateful=())
        try:
            number: int = state_of("default", stores.transaction("default"))(b"key", 0).get("n", 0)
            return number
        finally:
            stores.close()


def committed(world: World) -> dict[TopicPartition, int]:
    """Return where the group is."""
    return world.clients.offsets


def seen(world: World) -> int:
    """Return how many records were told of before their commit."""
    return sum(message.report.records for message in world.link.told(ProgressUpdate))


def processed(world: World) -> dict[TopicPartition, list[int]]:
    """Return the offsets that were told to be processed."""
    told: dict[TopicPartition, list[int]] = {}
    for report in world.reports:
        for place, offsets in report.processed.items():
            told.setdefault(place, []).extend(offsets)
    return told


def waiting_store(world: World) -> str:
    """Return the name of the store that waits for a watermark."""
    topology = world.spec.topology
    (name,) = topology.watermarks("in") or topology.wall_clock_stores("in")
    return name
