"""The event time of an application: watermarks, idle partitions, and the tasks to tick.

`EventTime` decides from reported facts, and does no input or output. The runner reports which tasks this process owns,
which of them can be ticked, which are at the ends of their inputs, the read positions, and the event times that stores
and exchanges have seen. `EventTime` returns a watermark for each store of each task, and the tasks that are due.

**Watermarks have no memory.** The watermark of a store is the lowest observed time of all partitions that are not idle,
by the current facts. It may fall, for example when a partition with a backlog is assigned. Stores keep separate clocks,
which never go back.

**A partition is idle** while it is at its end and its observed time has not moved for the idle timeout. This timeout
runs only while the process knows that the partition is at its end. A partition that cannot be read or processed now is
never idle.

**Watermarks pass repartition topics by barriers** (`event_time/barriers.py`). The watermark in front of an exchange is
derived from the highest event times that tasks have sent into it, once these records are durable. These tasks may
belong to other instances (`Peer`). `docs/decisions/0010-one-component-for-event-time.md` has the reasons.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from streamrt.event_time.barriers import Barrier, Passage
from streamrt.event_time.end_of_time import EndOfTime
from streamrt.event_time.watermark_bounds import ahead_of_slowest, lowest_of_others
from streamrt.records import TopicPartition
from streamrt.runtime.report import Report, StoreTime
from streamrt.topology import TaskId, Topology, WatermarkStrategy

__all__ = ["EventTime", "Peer", "StepClock"]

_LONGEST_STEP_MS = 1_000


class StepClock:
    """Measures milliseconds between calls, with a cap for gaps in which records may have gone unnoticed.

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
        """Return the milliseconds since the last call without a cap, for a time without unnoticed records."""
        last, self._last = self._last, at
        return 0 if last is None else int((at - last) * 1_000)


@dataclass(frozen=True)
class Peer:
    """A task that another instance owns, as known from its commits.

    Attributes:
        at_end: whether all of its input is processed and committed.
        sent: the highest event time that it has sent into each exchange, by topic.
        pending: the exchanges into which its open windows will send more without a further record.
        positions: committed offset of each of its input partitions.
        deadlines: the event time of the first of these windows, by exchange; an earlier version does not say it.
    """

    at_end: bool
    sent: Mapping[str, int]
    pending: frozenset[str]
    positions: Mapping[TopicPartition, int]
    deadlines: Mapping[str, int] = field(default_factory=dict)


@dataclass
class _Point:
    """Event time at one store of a task, or at one exchange that it sends into.

    Attributes:
        time: the highest event time observed or sent; None before the first.
        moved_at: the quiet time of the task when `time` last moved.
        next_deadline: for a store, the event time of its next work.
        next_processing_deadline: for a store with deadlines of both kinds, the wall clock time of its next work.
        reported: whether the task has reported it.
    """

    time: int | None = None
    moved_at: int = 0
    next_deadline: int | None = None
    next_processing_deadline: int | None = None
    reported: bool = False

    def reach(self, time: int | None, quiet_ms: int) -> bool:
        """Note a time, and return whether it is higher than before; a lower one is ignored."""
        moved = time is not None and (self.time is None or time > self.time)
        if moved:
            self.time, self.moved_at = time, quiet_ms
        return moved


@dataclass
class _Task:
    """The known facts about a task.

    Attributes:
        quiet_ms: total time in milliseconds for which it was known to be at the ends of its inputs.
        at_end: whether it is there now, with all records processed.
        ready: whether it can be ticked.
        pending: for a task of another instance, the exchanges into which it will send more without a further record.
        deadlines: for a task of another instance, the event time of the first window that does so, by exchange.
        stores: its stores with deadlines, by name.
        exchanges: the exchanges that it sends into, by topic.
    """

    quiet_ms: int = 0
    at_end: bool = False
    ready: bool = False
    pending: frozenset[str] | None = None
    deadlines: Mapping[str, int] = field(default_factory=dict)
    stores: dict[str, _Point] = field(default_factory=dict)
    exchanges: dict[str, _Point] = field(default_factory=dict)

    def quiet_since(self, point: _Point) -> int:
        """Return for how many milliseconds a point has not moved; only time at the end of the inputs counts."""
        return self.quiet_ms - point.moved_at

    def is_idle(self, point: _Point, strategy: WatermarkStrategy) -> bool:
        """Return whether a point of this task is idle, so that it does not hold back the watermark."""
        return self.at_end and strategy.idle_ms is not None and self.quiet_since(point) >= strategy.idle_ms


@dataclass(frozen=True)
class _Inputs:
    """The topics that feed a store or an exchange.

    Attributes:
        exchanges: the repartition topics among them.
        outside: whether there are other topics.
    """

    exchanges: tuple[str, ...]
    outside: bool

    @classmethod
    def of(cls, topics: Collection[str], topology: Topology) -> "_Inputs":
        exchanges = tuple(topic for topic in topics if topic in topology.exchanges)
        return cls(exchanges, len(exchanges) < len(topics))


class EventTime:
    """Computes watermarks and due tasks for the tasks of one process.

    Args:
        topology: the operators, resolved.
        partitions: number of partitions of each topic that a dataframe reads, repartition topics included.
        end: the end of time, if the run is bounded.

    Attributes:
        latest: the watermarks when tasks were last looked for, for observers in other threads.

    Example:
        >>> from streamrt.topology import TopologyBuilder
        >>> EventTime(TopologyBuilder().build(), {}).wanted
        False
    """

    def __init__(self, topology: Topology, partitions: Mapping[str, int], end: EndOfTime | None = None) -> None:
        self.end = end or EndOfTime()
        self.end.describe(topology, partitions)
        self._topology = topology
        self._partitions = partitions
        self._strategies = {stream: topology.watermarks(stream) for stream in topology.streams}
        self._wall_clock = {stream: topology.wall_clock_stores(stream) for stream in topology.streams}
        self._exchanges = topology.timed_exchanges
        self._passages = {
            (topic, strategy): Passage() for topic, strategies in self._exchanges.items() for strategy in strategies
        }
        self._sends = {stream: topology.sends(stream) for stream in topology.streams}
        # The topics that feed each store and each exchange. These need not be all inputs of a task: the task itself may
        # feed one of them.
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
        # The stores whose deadlines may send outputs into an exchange, and how far these may be behind the deadlines.
        self._before = {topic: topology.holds_before(topic) for topic in self._exchanges}
        self._tasks: dict[TaskId, _Task] = {}
        self._peers: dict[TaskId, _Task] = {}
        self._owners: dict[TaskId, object] = {}
        # Results that hold until a fact changes.
        self._watermarks: dict[TaskId, dict[str, int]] | None = None
        self._others: dict[TaskId, dict[str, int]] | None = None
        self.latest: Mapping[TaskId, Mapping[str, int]] = {}

    @property
    def wanted(self) -> bool:
        """Whether any store has deadlines, or time has ended."""
        return any(self._strategies.values()) or any(self._wall_clock.values()) or self.end.wanted

    @property
    def passes(self) -> bool:
        """Whether any watermark passes a repartition topic."""
        return bool(self._passages)

    # -- Facts ---------------------------------------------------------------------------------------------------------

    def assign(self, tasks: Iterable[TaskId]) -> None:
        """Set the tasks that this process owns now; the facts about those that stay are kept.

        Args:
            tasks: the tasks, including those that cannot be processed now: they hold back the watermark.
        """
        self._forget_results()
        tasks = list(tasks)
        self.end.assign(tasks)
        own = [task for task in tasks if self._needs_time(task.stream)]
        self._tasks = {task: self._tasks.get(task) or self._begin_task(task) for task in own}
        for task in own:
            former = self._peers.pop(task, None)
            for topic, point in () if former is None else former.exchanges.items():
                self._tasks[task].exchanges[topic].reach(point.time, 0)
        self._keep_passages()

    def restart(self, tasks: Iterable[TaskId]) -> None:
        """Forget event times and positions of tasks that restart at their committed offsets; both are reported again."""
        self._forget_results()
        restarted = [task for task in tasks if task in self._tasks]
        for task in restarted:
            known = self._tasks[task]
            known.at_end = False
            known.stores = {name: _Point(moved_at=known.quiet_ms) for name in known.stores}
        for passage in self._passages.values():
            passage.forget(partition for task in restarted for partition in self._topology.inputs(task))

    def ready(self, tasks: Iterable[TaskId]) -> None:
        """Set the tasks that can be ticked; all others wait, and do not count as at their ends."""
        self._forget_results()
        able = set(tasks)
        self.end.ready(able)
        for task, known in self._tasks.items():
            known.ready = task in able
            known.at_end = known.at_end and known.ready

    def at_end(self, ended: Iterable[TaskId] | None = None, among: Iterable[TaskId] | None = None) -> None:
        """Set the tasks that are at the ends of their inputs, with all records processed.

        Args:
            ended: the tasks at their ends; by default all of `among`.
            among: the tasks to update; by default all of this process.
        """
        self._forget_results()
        found = None if ended is None else set(ended)
        for task in self._tasks if among is None else among:
            known = self._tasks.get(task)
            if known is not None:
                known.at_end = known.ready and (found is None or task in found)

    def elapse(self, milliseconds: int, among: Iterable[TaskId] | None = None) -> None:
        """Advance the quiet time of tasks that are at their ends.

        Args:
            milliseconds: the elapsed time.
            among: the tasks to advance; by default all, including those of other instances.
        """
        self._forget_results()
        tasks = (*self._tasks.values(), *self._peers.values())
        for known in tasks if among is None else [self._tasks[task] for task in among if task in self._tasks]:
            if known.at_end:
                known.quiet_ms += milliseconds

    def note_owner(self, owner: object, tasks: Iterable[TaskId]) -> None:
        """Note that one of several processes asks where its tasks begin: it owns them, and no others, until another one asks.

        Args:
            owner: stands for the process.
            tasks: its tasks.
        """
        self._owners = {task: former for task, former in self._owners.items() if former is not owner}
        self._owners.update(dict.fromkeys(tasks, owner))

    def owned_by(self, owner: object, tasks: Iterable[TaskId]) -> set[TaskId]:
        """Return those of some tasks that no other process owns: one that was suspended may not know it yet.

        Args:
            owner: stands for the process.
            tasks: the tasks that it has asked for last.
        """
        return {task for task in tasks if self._owners.get(task, owner) is owner}

    def record_report(self, report: Report, own: Collection[TaskId]) -> None:
        """Note a report of one of several processes that run tasks.

        A process that was suspended may report what it knows of tasks that another one runs by now. Then only what is durable
        counts.

        Args:
            report: the report.
            own: the tasks of this process; see `owned_by`.
        """
        self.report({point: seen for point, seen in report.times.items() if point[0] in own}, report.sent)
        self.end.report(report.ended)
        self.record_positions({partition: done.end for partition, done in report.ranges.items()}, own)

    def record_positions(self, positions: Mapping[TopicPartition, int], own: Collection[TaskId]) -> None:
        """Note how far one of several processes has read.

        Args:
            positions: next offset to process of input partitions.
            own: the tasks of this process.
        """
        self.processed({each: at for each, at in positions.items() if self._topology.task(each) in own})

    def report(
        self,
        times: Mapping[tuple[TaskId, str], StoreTime],
        sent: Mapping[tuple[TaskId, str], int],
    ) -> None:
        """Note the event times that tasks have reported.

        Args:
            times: event times and deadlines, by task and store.
            sent: the highest event time that is durable in an exchange, by task and topic.
        """
        for (task, name), seen in times.items():
            known = self._tasks.get(task)
            point = None if known is None else known.stores.get(name)
            if known is None or point is None:
                continue
            point.reported = True
            point.next_deadline = seen.next_deadline
            point.next_processing_deadline = seen.next_processing_deadline
            # The remembered time of a store may come from a watermark, which implies nothing about this partition's
            # records.
            if point.reach(seen.reached if point.time is None else seen.observed, known.quiet_ms):
                self._forget_results()
        for (task, topic), time in sent.items():
            known = self._tasks.get(task)
            if known is not None and topic in known.exchanges:
                known.exchanges[topic].reach(time, known.quiet_ms)

    def begin(self, positions: Mapping[TopicPartition, int]) -> None:
        """Set the offsets at which input partitions begin, which may be lower than what was processed before."""
        self._forget_results()
        for (topic, _), passage in self._passages.items():
            passage.begin(self._known_of(topic, positions))

    def processed(self, positions: Mapping[TopicPartition, int]) -> None:
        """Note the next offset to process of input partitions; it may lie after transaction markers.

        Reports come out of order: a lower offset than the known one is outdated.
        """
        for (topic, _), passage in self._passages.items():
            if passage.advance(self._known_of(topic, positions)):
                self._forget_results()

    def peers(self, found: Mapping[TaskId, Peer]) -> None:
        """Note the commits of other instances for the tasks from `foreign_tasks`.

        For a task that this process owns, only its sent times are added: it may have sent more before this process
        began.
        """
        self._forget_results()
        for task, peer in found.items():
            known = self._tasks.get(task)
            if known is None:
                known = self._peers.setdefault(task, self._begin_task(task))
                known.at_end, known.pending, known.deadlines = peer.at_end, peer.pending, peer.deadlines
            for topic, time in peer.sent.items():
                if topic in known.exchanges:
                    known.exchanges[topic].reach(time, known.quiet_ms)
            if task in self._peers:
                self.processed(peer.positions)

    # -- Results -------------------------------------------------------------------------------------------------------

    def foreign_tasks(self) -> set[TaskId]:
        """Return the tasks that send into exchanges and that this process does not own, but must know."""
        streams = {stream for stream, topics in self._sends.items() if topics}
        return {task for stream in streams for task in self._all_tasks(stream) if task not in self._tasks}

    def watermarks(self) -> dict[TaskId, dict[str, int]]:
        """Return the watermarks, in milliseconds, by task and store; unknown ones are missing.

        The same object, unless a fact has changed.
        """
        if (last := self._watermarks) is not None:
            return last
        found: dict[TaskId, dict[str, int]] = {}
        observed = {
            (stream, store): self._observed_watermark(stream, store, self._strategies[stream][store])
            for (stream, store), inputs in self._store_inputs.items()
            if inputs.outside
        }
        for task, known in self._tasks.items():
            if not known.stores:
                continue
            marks = found[task] = {}
            for store, strategy in self._strategies[task.stream].items():
                inputs = self._store_inputs[task.stream, store]
                parts = self._reached_watermarks(inputs, strategy, task.partition)
                if inputs.outside:
                    parts.append(observed[task.stream, store])
                lowest = _lowest_time(parts)
                if lowest is not None:
                    marks[store] = lowest
        self._watermarks = found
        return found

    def others(self) -> dict[TaskId, dict[str, int]]:
        """Return, by task and store, the watermark of all other partitions; unknown ones are missing.

        With it, a task moves event time between two records: to the lowest of it and of the own watermark. Behind
        nothing but an exchange, only barriers move event time. The same object, unless a fact has changed.
        """
        if (last := self._others) is not None:
            return last
        found: dict[TaskId, dict[str, int]] = {}
        for (stream, store), inputs in self._store_inputs.items():
            if not inputs.outside:
                continue
            strategy = self._strategies[stream][store]
            points = {
                task: (known, known.stores[store]) for task, known in self._tasks.items() if task.stream == stream
            }
            active = {task: point.time for task, (known, point) in points.items() if not known.is_idle(point, strategy)}
            for task, others in lowest_of_others(active, points).items():
                lowest = _lowest_time([others, *self._reached_watermarks(inputs, strategy, task.partition)])
                if lowest is not None:
                    found.setdefault(task, {})[store] = lowest
        self._others = found
        return found

    def ahead(self) -> frozenset[TaskId]:
        """Return the tasks that must wait, because they run ahead of the slowest one of their stream that is not idle.

        One time for each task decides, the lowest of its stores. With one for each store, two tasks could wait for each
        other.
        """
        found: set[TaskId] = set()
        for stream, strategies in self._strategies.items():
            aligned = {store: its.alignment_ms for store, its in strategies.items() if its.alignment_ms is not None}
            if not aligned:
                continue
            times: dict[TaskId, int | None] = {}
            for task, known in self._tasks.items():
                if task.stream != stream:
                    continue
                points = [known.stores[store] for store in aligned]
                if not all(known.is_idle(known.stores[store], strategies[store]) for store in aligned):
                    times[task] = _lowest_time(point.time for point in points)
            found |= ahead_of_slowest(times, min(aligned.values()))
        # At the end of a bounded run nothing is left to wait for.
        return frozenset(found).difference(self.end.due)

    def sent(self) -> dict[TaskId, dict[str, int]]:
        """Return the highest event time that each task of this process has sent into each exchange."""
        found: dict[TaskId, dict[str, int]] = {}
        for task, known in self._tasks.items():
            times = {topic: point.time for topic, point in known.exchanges.items() if point.time is not None}
            if times:
                found[task] = times
        return found

    def due(self, now: int) -> set[TaskId]:
        """Return the tasks with due work, or whose deadlines are not reported yet.

        Args:
            now: wall clock, in milliseconds since the Unix epoch.
        """
        watermarks = self.latest = self.watermarks()
        found: set[TaskId] = set(self.end.due)
        for task, known in self._tasks.items():
            wall_clock = self._wall_clock[task.stream]
            for name, point in known.stores.items() if known.ready else ():
                timed = name in self._strategies[task.stream] or name not in wall_clock
                reached = watermarks[task].get(name) if timed else now
                if (
                    not point.reported
                    or _is_due(point.next_deadline, reached)
                    or _is_due(point.next_processing_deadline, now)
                ):
                    found.add(task)
        return found

    def barrier(self) -> Barrier | None:
        """Return the request that lets watermarks advance behind exchanges; None if none is needed."""
        wanted: dict[tuple[str, WatermarkStrategy], int] = {}
        for (topic, strategy), passage in self._passages.items():
            if not self._is_awaited(self._topology.stream_of_topic[topic], strategy):
                continue
            watermark = self._sent_watermark(topic, strategy)
            if watermark is not None and passage.needs(watermark):
                wanted[topic, strategy] = watermark
        if not wanted:
            return None
        topics = {topic for topic, _ in wanted}
        numbers = {topic: range(self._partitions[topic]) for topic in topics}
        return Barrier(wanted, frozenset(TopicPartition(topic, each) for topic in topics for each in numbers[topic]))

    def add_barrier(self, barrier: Barrier, ends: Mapping[TopicPartition, int]) -> None:
        """Add the answer to a request from `barrier`.

        Args:
            barrier: the request.
            ends: the high watermark of each partition, read after the request was made.
        """
        self._forget_results()
        for (topic, strategy), watermark in barrier.watermarks.items():
            own = {partition: end for partition, end in ends.items() if partition.topic == topic}
            self._passages[topic, strategy].add(watermark, own)

    # -- Rules ---------------------------------------------------------------------------------------------------------

    def _observed_watermark(self, stream: str, store: str, strategy: WatermarkStrategy) -> int | None:
        """Return the watermark of a store from the observed times of its own partitions."""
        points = [(known, known.stores[store]) for task, known in self._tasks.items() if task.stream == stream]
        active = [point.time for known, point in points if not known.is_idle(point, strategy)]
        if active:
            # A partition without a first record holds back the watermark until it is idle.
            return _lowest_time(active)
        return _of_idle(points, strategy)

    def _sent_watermark(self, topic: str, strategy: WatermarkStrategy) -> int | None:
        """Return the watermark in front of an exchange: only idle partitions may still send earlier event times."""
        stream = self._topology.stream_of(self._topology.exchanges[topic])
        inputs, hold = self._exchange_inputs[topic], self._holds[topic]
        if not inputs.outside and hold is not None:
            # Each partition mixes records of all tasks before it, so the last sent time implies nothing about later
            # ones.
            passed = [
                self._done_watermark(topic, task, self._passed_watermarks(inputs, strategy, task.partition))
                for task in self._all_tasks(stream)
            ]
            lowest = _lowest_time(passed)
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
                sent = self._settled_time(topic, known)
                active.append(_lowest_time([sent, *self._passed_watermarks(inputs, strategy, task.partition)]))
        return _lowest_time(active) if active else _of_idle(found, strategy)

    def _settled_time(self, topic: str, known: _Task) -> int | None:
        """Return the event time up to which a task has sent into an exchange what comes of its records so far.

        That is the highest one that it has sent, unless windows are open whose results may be older: of several windows
        in front of an exchange, each closes in its own time.
        """
        holds = {store: hold for store, hold in self._before[topic].items() if hold is not None}
        found = [known.exchanges[topic].time]
        if known.pending is not None:
            if holds and topic in known.deadlines:
                found.append(known.deadlines[topic] - max(holds.values()))
            return _lowest_time(found)
        for name, hold in holds.items():
            point = known.stores[name]
            if not point.reported:
                return None
            if point.next_deadline is not None:
                found.append(point.next_deadline - hold)
        return _lowest_time(found)

    def _done_watermark(self, topic: str, task: TaskId, passed: list[int | None]) -> int | None:
        """Return the watermark up to which a task has sent into an exchange what its windows give.

        That a watermark has passed does not mean that the task has been ticked with it: windows that it makes due may still
        have to be emitted, all of a backlog if it is the first one.
        """
        lowest = _lowest_time(passed)
        if lowest is None:
            return None
        known = self._tasks.get(task)
        if known is None:
            peer = self._peers.get(task)
            deadline = None if peer is None else peer.deadlines.get(topic)
            return lowest if deadline is None else min(lowest, deadline - 1)
        for name in self._before[topic]:
            point = known.stores[name]
            if not point.reported:
                return None
            if point.next_deadline is not None:
                # Due when the watermark of the store, which is behind by this, reaches it.
                lag = self._strategies[task.stream][name].out_of_orderness_ms
                lowest = min(lowest, point.next_deadline - 1 + lag)
        return lowest

    def _passed_watermarks(self, inputs: _Inputs, strategy: WatermarkStrategy, partition: int) -> list[int | None]:
        """Return the watermarks that have passed the exchanges in a partition."""
        return [self._passages[topic, strategy].passed(TopicPartition(topic, partition)) for topic in inputs.exchanges]

    def _reached_watermarks(self, inputs: _Inputs, strategy: WatermarkStrategy, partition: int) -> list[int | None]:
        """Return the watermarks for a store from the exchanges that feed it: records in them may also be out of order."""
        passed = self._passed_watermarks(inputs, strategy, partition)
        lag = strategy.out_of_orderness_ms
        return [None if time is None else max(0, time - lag) if lag else time for time in passed]

    def _is_quiet(self, topic: str, strategy: WatermarkStrategy) -> bool:
        """Return whether all tasks that send into an exchange, and into the exchanges before it, are idle."""
        for task in self._all_tasks(self._topology.stream_of(self._topology.exchanges[topic])):
            known = self._tasks.get(task) or self._peers.get(task)
            if known is None or self._is_pending(known, topic):
                return False
            if not known.is_idle(known.exchanges[topic], strategy):
                return False
        return all(self._is_quiet(before, strategy) for before in self._exchange_inputs[topic].exchanges)

    def _is_pending(self, known: _Task, topic: str) -> bool:
        """Return whether a task will send into an exchange without a further record."""
        if known.pending is not None:
            return topic in known.pending
        points = (known.stores[name] for name in self._before[topic])
        return any(not point.reported or point.next_deadline is not None for point in points)

    def _is_awaited(self, stream: str, strategy: WatermarkStrategy) -> bool:
        """Return whether any store or exchange behind an exchange waits for a watermark."""
        if any(strategy in self._exchanges[topic] for topic in self._sends[stream]):
            return True
        waiting = {store for store, its in self._strategies[stream].items() if its == strategy}
        return any(
            not point.reported or point.next_deadline is not None
            for task, known in self._tasks.items()
            if task.stream == stream
            for store, point in known.stores.items()
            if store in waiting
        )

    def _forget_results(self) -> None:
        self._watermarks = self._others = None

    # -- Helpers -------------------------------------------------------------------------------------------------------

    def _needs_time(self, stream: str) -> bool:
        return bool(self._strategies[stream] or self._wall_clock[stream] or self._sends[stream])

    def _begin_task(self, task: TaskId) -> _Task:
        stores = (*self._strategies[task.stream], *self._wall_clock[task.stream])
        return _Task(
            stores={name: _Point() for name in stores},
            exchanges={topic: _Point() for topic in self._sends[task.stream]},
        )

    def _all_tasks(self, stream: str) -> list[TaskId]:
        topic = next(iter(self._topology.streams[stream]))
        return [TaskId(stream, number) for number in range(self._partitions[topic])]

    def _known_of(self, topic: str, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the positions in an exchange whose tasks are known: a report may come after its partition has left."""
        stream = self._topology.stream_of_topic[topic]
        tasks = (
            (partition, TaskId(stream, partition.partition)) for partition in positions if partition.topic == topic
        )
        return {each: positions[each] for each, task in tasks if task in self._tasks or task in self._peers}

    def _keep_passages(self) -> None:
        known = (*self._tasks, *self._peers)
        for (topic, _), passage in self._passages.items():
            stream = self._topology.stream_of_topic[topic]
            passage.keep(TopicPartition(topic, task.partition) for task in known if task.stream == stream)


def _is_due(deadline: int | None, reached: int | None) -> bool:
    return deadline is not None and reached is not None and deadline <= reached


def _lowest_time(times: Iterable[int | None]) -> int | None:
    """Return the lowest time; None if there is none or any is unknown."""
    found = list(times)
    known = [time for time in found if time is not None]
    return min(known) if known and len(known) == len(found) else None


def _of_idle(points: Iterable[tuple[_Task, _Point]], strategy: WatermarkStrategy) -> int | None:
    """Return the watermark while all are idle: the newest time, plus the quiet time unless it is held."""
    known = [(point.time, task.quiet_since(point)) for task, point in points if point.time is not None]
    if not known:
        return None
    newest = max(time for time, _ in known)
    return newest if strategy.when_all_idle == "hold" else newest + min(quiet for _, quiet in known)
