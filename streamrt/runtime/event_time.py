"""Event time of an application: watermarks, which partitions are idle, and which tasks must be ticked.

`EventTime` decides from facts that it is told, and does no input or output. Whoever runs tasks tells it which of them this
process owns, which can be ticked, which are read to their ends, how far inputs are read, and what stores and exchanges have
seen. It answers with a watermark for each store of each task, and with the tasks that are due.

**Watermarks have no memory.** The watermark of a store is the lowest observed time of all partitions that are not idle, by
the facts of now. It may be lower than a moment ago, such as when a partition that lags behind is assigned. Stores keep their
own clocks, which never go back.

**A partition is idle** while it is at its end, and its observed time has not moved for the idle timeout. That time counts
only while the process knows that the partition is at its end. What cannot be read or processed now is never idle.

**Watermarks pass repartition topics by barriers** (`runtime/barriers.py`). The watermark in front of an exchange is made of
the highest event times that tasks have sent into it, once these records are durable. Tasks may be other instances' (`Peer`).
`docs/decisions/0010-one-component-for-event-time.md` has the reasons.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from streamrt.models import TopicPartition
from streamrt.runtime.barriers import Barrier, Passage
from streamrt.runtime.report import StoreTime
from streamrt.topology import Topology, WatermarkStrategy

__all__ = ["EventTime", "Peer", "StepClock"]

_LONGEST_STEP_MS = 1_000


class StepClock:
    """Gives the milliseconds since it was asked last, as far as somebody can know what happened in them.

    Example:
        >>> clock = StepClock()
        >>> clock.step(5.0), clock.step(5.5), clock.step(60.0), clock.gap(65.0)
        (0, 500, 1000, 5000)
    """

    def __init__(self) -> None:
        self._last: float | None = None

    def step(self, at: float) -> int:
        """Return the milliseconds since the last call: one second at most, since a gap may hide records.

        Args:
            at: seconds of a clock that never goes back.
        """
        return min(_LONGEST_STEP_MS, self.gap(at))

    def gap(self, at: float) -> int:
        """Return all of the milliseconds since the last call, for whoever knows that nothing happened in them."""
        last, self._last = self._last, at
        return 0 if last is None else int((at - last) * 1_000)


@dataclass(frozen=True)
class Peer:
    """What is known of a task that another instance owns, from what it has committed.

    Attributes:
        at_end: whether all of its input is processed and committed.
        sent: highest event time that it has sent into exchanges, by topic.
        pending: the exchanges that it will send more into without a further record, because windows are open.
        positions: committed offset of each of its input partitions.
    """

    at_end: bool
    sent: Mapping[str, int]
    pending: frozenset[str]
    positions: Mapping[TopicPartition, int]


@dataclass
class _Point:
    """Event time at one store of a task, or at one exchange that it sends into.

    Attributes:
        time: highest event time observed, or sent; None before the first.
        moved_at: the quiet time of the task when it last moved.
        next_deadline: for a store, when it has something to do.
        reported: whether the task has told of it.
    """

    time: int | None = None
    moved_at: int = 0
    next_deadline: int | None = None
    reported: bool = False

    def reach(self, time: int | None, quiet_ms: int) -> None:
        """Note a time; a lower one is no news."""
        if time is not None and (self.time is None or time > self.time):
            self.time, self.moved_at = time, quiet_ms


@dataclass
class _Task:
    """What is known of a task.

    Attributes:
        quiet_ms: how long it was known to be at the ends of its inputs, in all.
        at_end: whether it is there now, and all that was read is processed.
        ready: whether it can be ticked.
        pending: of another instance's task, the exchanges that it will send more into without a further record.
        stores: its stores with deadlines, by name.
        exchanges: the exchanges that it sends into, by topic.
    """

    quiet_ms: int = 0
    at_end: bool = False
    ready: bool = False
    pending: frozenset[str] | None = None
    stores: dict[str, _Point] = field(default_factory=dict)
    exchanges: dict[str, _Point] = field(default_factory=dict)

    def quiet_since(self, point: _Point) -> int:
        """Return for how long a point has not moved, counted while the task was at its end."""
        return self.quiet_ms - point.moved_at

    def is_idle(self, point: _Point, strategy: WatermarkStrategy) -> bool:
        """Tell whether the others need not wait for a point of this task."""
        return self.at_end and strategy.idle_ms is not None and self.quiet_since(point) >= strategy.idle_ms


@dataclass(frozen=True)
class _Inputs:
    """The topics that some records come from.

    Attributes:
        exchanges: the repartition topics among them.
        outside: whether there are others.
    """

    exchanges: tuple[str, ...]
    outside: bool

    @classmethod
    def of(cls, topics: Collection[str], topology: Topology) -> "_Inputs":
        exchanges = tuple(topic for topic in topics if topic in topology.exchanges)
        return cls(exchanges, len(exchanges) < len(topics))


class EventTime:
    """Decides about event time for the tasks of one process.

    Args:
        topology: the operators, resolved.
        partitions: number of partitions of each topic that a dataframe reads, repartition topics included.

    Example:
        >>> from streamrt.topology import TopologyBuilder
        >>> EventTime(TopologyBuilder().build(), {}).wanted
        False
    """

    def __init__(self, topology: Topology, partitions: Mapping[str, int]) -> None:
        self._topology = topology
        self._partitions = partitions
        self._strategies = {stream: topology.watermarks(stream) for stream in topology.streams}
        self._wall_clock = {stream: topology.wall_clock_stores(stream) for stream in topology.streams}
        self._exchanges = topology.timed_exchanges
        self._passages = {
            (topic, strategy): Passage() for topic, strategies in self._exchanges.items() for strategy in strategies
        }
        self._sends = {stream: topology.sends(stream) for stream in topology.streams}
        # Where the records come from that stores get, or that are sent into exchanges. Not all inputs of a task need be among
        # them: one of them may be fed by this very task.
        self._store_inputs = {
            (stream, name): _Inputs.of(topology.scopes[store.scope], topology)
            for stream, stores in self._strategies.items()
            for name, store in topology.task_stores(stream).items()
            if name in stores
        }
        self._exchange_inputs = {
            topic: _Inputs.of(topology.scopes[topology.scope(topology.exchanges[topic])], topology)
            for topic in self._exchanges
        }
        self._holds = {topic: topology.holds_back_ms(topic) for topic in self._exchanges}
        # The stores whose deadlines may put something out into an exchange.
        self._before = {topic: stores for sends in self._sends.values() for topic, stores in sends.items()}
        self._tasks: dict[TopicPartition, _Task] = {}
        self._peers: dict[TopicPartition, _Task] = {}

    @property
    def wanted(self) -> bool:
        """Whether any store has deadlines that time must reach."""
        return any(self._strategies.values()) or any(self._wall_clock.values())

    @property
    def passes(self) -> bool:
        """Whether any watermark passes a repartition topic."""
        return bool(self._passages)

    # -- Facts ---------------------------------------------------------------------------------------------------------

    def assign(self, tasks: Iterable[TopicPartition]) -> None:
        """Begin with the tasks that this process owns now; what is known of those that stay is kept.

        Args:
            tasks: the tasks, those that cannot be worked on now included: they hold others up.
        """
        own = [task for task in tasks if self._concerns(task.topic)]
        self._tasks = {task: self._tasks.get(task) or self._begun(task) for task in own}
        for task in own:
            former = self._peers.pop(task, None)
            for topic, point in () if former is None else former.exchanges.items():
                self._tasks[task].exchanges[topic].reach(point.time, 0)
        self._keep_passages()

    def restart(self, tasks: Iterable[TopicPartition]) -> None:
        """Forget what stores of tasks have seen: they begin again where they are committed."""
        for task in tasks:
            known = self._tasks.get(task)
            if known is not None:
                known.at_end = False
                known.stores = {name: _Point(moved_at=known.quiet_ms) for name in known.stores}

    def ready(self, tasks: Iterable[TopicPartition]) -> None:
        """Say which tasks can be ticked; all others wait, and are not at their ends."""
        able = set(tasks)
        for task, known in self._tasks.items():
            known.ready = task in able
            known.at_end = known.at_end and known.ready

    def at_end(
        self, ended: Iterable[TopicPartition] | None = None, among: Iterable[TopicPartition] | None = None
    ) -> None:
        """Say which tasks are at the ends of their inputs, with all that was read processed.

        Args:
            ended: those that are; by default all that are looked at.
            among: the tasks that are looked at; by default all of this process.
        """
        found = None if ended is None else set(ended)
        for task in self._tasks if among is None else among:
            known = self._tasks.get(task)
            if known is not None:
                known.at_end = known.ready and (found is None or task in found)

    def elapse(self, milliseconds: int, among: Iterable[TopicPartition] | None = None) -> None:
        """Let time pass: it counts as quiet for the tasks that are at their ends.

        Args:
            milliseconds: how much.
            among: the tasks for which it passes; by default all, those of other instances included.
        """
        tasks = (*self._tasks.values(), *self._peers.values())
        for known in tasks if among is None else [self._tasks[task] for task in among if task in self._tasks]:
            if known.at_end:
                known.quiet_ms += milliseconds

    def report(
        self,
        times: Mapping[tuple[TopicPartition, str], StoreTime],
        sent: Mapping[tuple[TopicPartition, str], int],
    ) -> None:
        """Note what tasks have seen.

        Args:
            times: where event time is, by task and store.
            sent: the highest event time that was sent into an exchange and is durable there, by task and topic.
        """
        for (task, name), seen in times.items():
            known = self._tasks.get(task)
            point = None if known is None else known.stores.get(name)
            if known is None or point is None:
                continue
            point.reported = True
            point.next_deadline = seen.next_deadline
            # What the store remembers may be from a watermark, which says nothing about this partition's records.
            point.reach(seen.reached if point.time is None else seen.observed, known.quiet_ms)
        for (task, topic), time in sent.items():
            known = self._tasks.get(task)
            if known is not None and topic in known.exchanges:
                known.exchanges[topic].reach(time, known.quiet_ms)

    def processed(self, positions: Mapping[TopicPartition, int]) -> None:
        """Note up to where input partitions are processed; offsets may lie behind markers of transactions."""
        for (topic, partition), position in positions.items():
            for strategy in self._exchanges.get(topic, ()):
                self._passages[topic, strategy].advance(partition, position)

    def peers(self, found: Mapping[TopicPartition, Peer]) -> None:
        """Note what other instances have committed, for the tasks that `foreign_tasks` names.

        What is known of a task of this process is added to: it may have sent more before the process began.
        """
        for task, peer in found.items():
            known = self._tasks.get(task)
            if known is None:
                known = self._peers.setdefault(task, self._begun(task))
                known.at_end, known.pending = peer.at_end, peer.pending
            for topic, time in peer.sent.items():
                if topic in known.exchanges:
                    known.exchanges[topic].reach(time, known.quiet_ms)
            if task in self._peers:
                self.processed(peer.positions)

    # -- Answers -------------------------------------------------------------------------------------------------------

    def foreign_tasks(self) -> set[TopicPartition]:
        """Return the tasks in front of exchanges that this process does not own, but must know of."""
        streams = {stream for stream, topics in self._sends.items() if topics}
        return {task for stream in streams for task in self._all_tasks(stream) if task not in self._tasks}

    def watermarks(self) -> dict[TopicPartition, dict[str, int]]:
        """Return the watermarks by task and store; those that are not known yet are missing."""
        found: dict[TopicPartition, dict[str, int]] = {}
        observed = {
            (stream, store): self._observed(stream, store, self._strategies[stream][store])
            for (stream, store), inputs in self._store_inputs.items()
            if inputs.outside
        }
        for task, known in self._tasks.items():
            if not known.stores:
                continue
            marks = found[task] = {}
            for store, strategy in self._strategies[task.topic].items():
                inputs = self._store_inputs[task.topic, store]
                parts = self._passed(inputs, strategy, task.partition)
                if inputs.outside:
                    parts.append(observed[task.topic, store])
                lowest = _lowest(parts)
                if lowest is not None:
                    marks[store] = lowest
        return found

    def sent(self) -> dict[TopicPartition, dict[str, int]]:
        """Return the highest event time that each task of this process has sent, by exchange."""
        found: dict[TopicPartition, dict[str, int]] = {}
        for task, known in self._tasks.items():
            times = {topic: point.time for topic, point in known.exchanges.items() if point.time is not None}
            if times:
                found[task] = times
        return found

    def due(self, now: int) -> set[TopicPartition]:
        """Return the tasks that have something to do by now, or have not told yet whether they have.

        Args:
            now: wall clock, in milliseconds since the Unix epoch.
        """
        watermarks = self.watermarks()
        found: set[TopicPartition] = set()
        for task, known in self._tasks.items():
            wall_clock = self._wall_clock[task.topic]
            for name, point in known.stores.items() if known.ready else ():
                reached = now if name in wall_clock else watermarks[task].get(name)
                deadline = point.next_deadline
                if not point.reported or (deadline is not None and reached is not None and deadline <= reached):
                    found.add(task)
        return found

    def barrier(self) -> Barrier | None:
        """Return what must be asked for so that watermarks get on behind exchanges; None if nobody waits for that."""
        wanted: dict[tuple[str, WatermarkStrategy], int] = {}
        for (topic, strategy), passage in self._passages.items():
            if not self._is_awaited(self._topology.stream_of_topic[topic], strategy):
                continue
            watermark = self._sent(topic, strategy)
            if watermark is not None and (passage.newest is None or watermark > passage.newest):
                wanted[topic, strategy] = watermark
        if not wanted:
            return None
        topics = {topic for topic, _ in wanted}
        numbers = {topic: range(self._partitions[topic]) for topic in topics}
        return Barrier(wanted, frozenset(TopicPartition(topic, each) for topic in topics for each in numbers[topic]))

    def add_barrier(self, barrier: Barrier, ends: Mapping[TopicPartition, int]) -> None:
        """Take the answer to `barrier`.

        Args:
            barrier: the question.
            ends: the high watermark of each partition, asked for after the question was made.
        """
        for (topic, strategy), watermark in barrier.watermarks.items():
            own = {place.partition: end for place, end in ends.items() if place.topic == topic}
            self._passages[topic, strategy].add(watermark, own)

    # -- Rules ---------------------------------------------------------------------------------------------------------

    def _observed(self, stream: str, store: str, strategy: WatermarkStrategy) -> int | None:
        """Return the watermark of a store that is made of what its own partitions have observed."""
        points = [(known, known.stores[store]) for task, known in self._tasks.items() if task.topic == stream]
        active = [point.time for known, point in points if not known.is_idle(point, strategy)]
        if active:
            # A partition that may still bring its first record holds the others up, until it is idle.
            return _lowest(active)
        return _of_idle(points, strategy)

    def _sent(self, topic: str, strategy: WatermarkStrategy) -> int | None:
        """Return the watermark in front of an exchange: nothing earlier will be sent into it, but by what was idle."""
        stream = self._topology.stream_of(self._topology.exchanges[topic])
        inputs, hold = self._exchange_inputs[topic], self._holds[topic]
        if not inputs.outside and hold is not None:
            # Records of all partitions are mixed there, so what a task has sent last says nothing about what it will send.
            passed = [_lowest(self._passed(inputs, strategy, task.partition)) for task in self._all_tasks(stream)]
            lowest = _lowest(passed)
            return None if lowest is None else lowest - hold
        found: list[tuple[_Task, _Point]] = []
        active: list[int | None] = []
        busy_before = inputs.outside and not all(self._is_quiet(before, strategy) for before in inputs.exchanges)
        for task in self._all_tasks(stream):
            known = self._tasks.get(task) or self._peers.get(task)
            if known is None:
                return None
            point = known.exchanges[topic]
            found.append((known, point))
            if busy_before or self._is_pending(known, topic) or not known.is_idle(point, strategy):
                active.append(_lowest([point.time, *self._passed(inputs, strategy, task.partition)]))
        return _lowest(active) if active else _of_idle(found, strategy)

    def _passed(self, inputs: _Inputs, strategy: WatermarkStrategy, partition: int) -> list[int | None]:
        """Return the watermarks that have come through exchanges to a partition."""
        return [self._passages[topic, strategy].passed(partition) for topic in inputs.exchanges]

    def _is_quiet(self, topic: str, strategy: WatermarkStrategy) -> bool:
        """Tell whether all tasks are idle that send into an exchange, and those that send into exchanges before it."""
        for task in self._all_tasks(self._topology.stream_of(self._topology.exchanges[topic])):
            known = self._tasks.get(task) or self._peers.get(task)
            if known is None or self._is_pending(known, topic):
                return False
            if not known.is_idle(known.exchanges[topic], strategy):
                return False
        return all(self._is_quiet(before, strategy) for before in self._exchange_inputs[topic].exchanges)

    def _is_pending(self, known: _Task, topic: str) -> bool:
        """Tell whether a task will send something into an exchange without a further record."""
        if known.pending is not None:
            return topic in known.pending
        points = (known.stores[name] for name in self._before[topic])
        return any(not point.reported or point.next_deadline is not None for point in points)

    def _is_awaited(self, stream: str, strategy: WatermarkStrategy) -> bool:
        """Tell whether anything behind an exchange waits for a watermark."""
        if any(strategy in self._exchanges[topic] for topic in self._sends[stream]):
            return True
        waiting = {store for store, its in self._strategies[stream].items() if its == strategy}
        return any(
            not point.reported or point.next_deadline is not None
            for task, known in self._tasks.items()
            if task.topic == stream
            for store, point in known.stores.items()
            if store in waiting
        )

    # -- Helpers -------------------------------------------------------------------------------------------------------

    def _concerns(self, stream: str) -> bool:
        return bool(self._strategies[stream] or self._wall_clock[stream] or self._sends[stream])

    def _begun(self, task: TopicPartition) -> _Task:
        stores = (*self._strategies[task.topic], *self._wall_clock[task.topic])
        return _Task(
            stores={name: _Point() for name in stores},
            exchanges={topic: _Point() for topic in self._sends[task.topic]},
        )

    def _all_tasks(self, stream: str) -> list[TopicPartition]:
        topic = next(iter(self._topology.streams[stream]))
        return [TopicPartition(stream, number) for number in range(self._partitions[topic])]

    def _keep_passages(self) -> None:
        known = (*self._tasks, *self._peers)
        for (topic, _), passage in self._passages.items():
            stream = self._topology.stream_of_topic[topic]
            passage.keep(task.partition for task in known if task.topic == stream)


def _lowest(times: Iterable[int | None]) -> int | None:
    """Return the lowest time; None if there is none, or one is not known."""
    found = list(times)
    known = [time for time in found if time is not None]
    return min(known) if known and len(known) == len(found) else None


def _of_idle(points: Iterable[tuple[_Task, _Point]], strategy: WatermarkStrategy) -> int | None:
    """Return the watermark while all are idle: that of the newest, and maybe the time that has passed since."""
    known = [(point.time, task.quiet_since(point)) for task, point in points if point.time is not None]
    if not known:
        return None
    newest = max(time for time, _ in known)
    return newest if strategy.when_all_idle == "hold" else newest + min(quiet for _, quiet in known)
