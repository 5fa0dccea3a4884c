"""Checks that must hold, whatever has gone wrong."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from streamrt.kafka.partitioner import partition_for
from streamrt.models import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.report import Report
from streamrt.state.changelog import POSITION_KEY, Position
from streamrt.topology import TaskId
from tests.sim.app import REPARTITIONS, Model, merged, target_key, unique_id, visible_state
from tests.sim.broker import Entry, Log
from tests.sim.driver import Wrong
from tests.sim.processing import FIRED, trouble_with_timers
from tests.sim.stores import Machine, Name

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

Pair = tuple[bytes, dict[str, Any]]
"""Key and value of an output."""


class Checks:
    """Compares what is with what should be.

    Args:
        sim: the world.
    """

    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim

    def begun(self, origin: str) -> None:
        """Hear that an attempt begins, or a resident task works on."""

    def failure(self, report: Report) -> None:
        """Refuse failures that end the application though nothing happened that it could not live with."""
        failure = report.failure
        if failure is None or "injected" in failure.message:
            return
        raise Wrong(f"the application ends: {failure.message}")

    def durable(self, offsets: Mapping[TopicPartition, int]) -> None:
        """At least once: an offset is committed only if all outputs of the records below it are durable."""
        for place, end in offsets.items():
            for sink in self._sim.setup.sinks(place.topic):
                written = {unique_id(entry) for log in self._logs(sink) for entry in log.history()}
                for record in self._sim.broker.logs[place].history(end):
                    if unique_id(record) not in written:
                        raise Wrong(
                            f"{place} is committed at {end}, but {sink} has no output of record {unique_id(record)}"
                        )

    def outputs(self, *, final: bool = False) -> None:
        """Compare what a reader of committed records sees with the model."""
        self._check_sunk()
        if self._sim.setup.transactional:
            for stream in self._sim.setup.streams:
                self._check_exactly_once(stream, final=final)
        elif final:
            self.durable({place: self._sim.broker.logs[place].end for place in self._sim.inputs})
            self._check_order()

    def _check_sunk(self) -> None:
        """Sinks have all records below the committed offsets."""
        if self._sim.setup.sink is None:
            return
        written = set(self._sim.sunk) | self._check_transactional_sink()
        for place, (end, _) in self._sim.broker.offsets.items():
            history = [] if place.topic in REPARTITIONS else self._sim.broker.logs[place].history(end)
            missing = [entry.offset for entry in history if (place, entry.offset) not in written]
            if missing:
                raise Wrong(f"{place} is committed at {end}, but the sink lacks {missing}")

    def _check_transactional_sink(self) -> set[tuple[TopicPartition, int]]:
        """Return the records whose values are in the database: each once, and exactly once the value of the model."""
        rows = self._sim.database.rows
        values = {(place, offset): value for place, offset, value in rows}
        if len(values) != len(rows):
            twice = [at for at, count in Counter((place, offset) for place, offset, _ in rows).items() if count > 1]
            raise Wrong(f"the transactional sink has the values of {twice} more than once")
        if self._sim.setup.transactional:
            found = {value["u"]: value for value in values.values()}
            for task in (each for each in self._sim.tasks if each.stream not in REPARTITIONS):
                if any(self._sim.broker.logs[place].lost for place in self._sim.spec.topology.inputs(task)):
                    # The sink may have values that were computed with records that were deleted before Kafka had them as
                    # processed.
                    continue
                for _, value in Model(self._sim.setup, task.stream).run(self._history(task)):
                    if found.get(value["u"], value) != value:
                        raise Wrong(f"the transactional sink has {found[value['u']]} instead of {value}")
        return set(values)

    def _check_exactly_once(self, stream: str, *, final: bool) -> None:
        """Each input has its outputs once, and those of a key are in order; before the end, some may be missing behind."""
        expected: dict[tuple[TaskId, TopicPartition], list[Pair]] = {}
        origins: dict[int, TaskId] = {}
        for task in (each for each in self._sim.tasks if each.stream == stream):
            for key, value in Model(self._sim.setup, stream, ended=self._sim.ended).run(self._history(task)):
                origins[value["u"]] = task
                for sink in self._sim.setup.sinks(stream):
                    target = target_key(sink, key, value)
                    at = TopicPartition(sink, partition_for(target, self._sim.broker.topics[sink]))
                    expected.setdefault((task, at), []).append((target, value))
        found: dict[tuple[TaskId, TopicPartition], list[Pair]] = {}
        for sink in self._sim.setup.sinks(stream):
            for at in self._places(sink):
                for entry in self._sim.broker.logs[at].history():
                    value = orjson.loads(entry.value or b"")
                    task = origins.get(value["u"], TaskId("nowhere", 0))
                    found.setdefault((task, at), []).append((entry.key or b"", value))
        for name in {**expected, **found}:
            want, got = expected.get(name, []), found.get(name, [])
            if got != want[: len(got)] or (final and len(got) != len(want)):
                raise Wrong(f"the outputs of {name[0]} in {name[1]} are\n{_lines(got)}\ninstead of\n{_lines(want)}")

    def _check_order(self) -> None:
        """At least once: each attempt's outputs are in the order of their inputs."""
        for stream, topics in self._sim.setup.streams.items():
            offsets = {
                (place, unique_id(entry)): entry.offset
                for topic in topics
                for place in self._places(topic)
                # At least once, what counts as lost may have been processed all the same.
                for entry in (*self._sim.broker.logs[place].lost, *self._sim.broker.logs[place].history())
            }
            home = {unique: place for place, unique in offsets}
            for sink in self._sim.setup.sinks(stream):
                for at in self._places(sink):
                    last: dict[tuple[str, TopicPartition], int] = {}
                    for entry in self._sim.broker.logs[at].history():
                        unique = unique_id(entry)
                        if unique > FIRED:
                            continue
                        run = entry.origin, home[unique]
                        if stream not in REPARTITIONS and offsets[home[unique], unique] <= last.get(run, -1):
                            raise Wrong(f"record {unique} is out of order in {at}, within attempt {entry.origin}")
                        last[run] = offsets[home[unique], unique]

    def state(self) -> None:
        """Compare all stores with the model: restored from nothing, and as they lie on the disks of machines."""
        fresh = Machine(len(self._sim.machines))
        positions = {place: self._sim.broker.offsets[place][0] for place in self._sim.inputs}
        self._restore_all(fresh, positions)
        inputs = self._sim.spec.topology.inputs
        for machine in (*self._sim.machines, fresh):
            for name in machine.partitions():
                entries, stamp = machine.content(name)
                if stamp is None or stamp.input_offset is None or name in machine.damaged:
                    continue
                task = self._task(name)
                end = self._sim.broker.logs[TopicPartition(self._sim.changelogs[name[0], name[1]], name[2])].end
                own = [each for each in inputs(task) if each.topic in self._sim.setup.scopes[name[0]]]
                found = {each: (stamp.inputs or {}).get(each.topic, stamp.input_offset) for each in own}
                if machine is fresh:
                    self._check_position(task, name, found, positions)
                if stamp.changelog_offset == end:
                    self._compare(machine, name[1], task, visible_state(entries, stamp), found)
        for machine in self._sim.machines:
            self._restore_all(machine, positions)
            for name in machine.partitions():
                entries, stamp = machine.content(name)
                if stamp is not None:
                    task = self._task(name)
                    self._compare(machine, name[1], task, visible_state(entries, stamp), positions)
                    self._agree(machine, fresh, name)

    def _agree(self, machine: Machine, fresh: Machine, name: Name) -> None:
        """State on a disk is what its changelog says, also with at-least-once."""
        entries, stamp = machine.content(name)
        others, other = fresh.content(name)
        if stamp is not None and other is not None and stamp.changelog_offset == other.changelog_offset:
            found, expected = visible_state(entries, stamp), visible_state(others, other)
            if found != expected:
                raise Wrong(f"{name} on machine {machine.number} has {found}, and its changelog says {expected}")

    def _restore_all(self, machine: Machine, positions: Mapping[TopicPartition, int]) -> None:
        """Restore all stores on a machine, from whatever lies there."""
        for task in self._sim.tasks:
            for _ in range(3):
                with self._sim.running(process := self._sim.new_process(machine), None):
                    # No one has claimed the partitions later.
                    claims = dict.fromkeys(positions, 1 << 40)
                    report = process.tasks.restore([task], BatchContext(dict(positions), claims=claims))
                self.failure(report)
                if not report.interrupted and not report.locked:
                    break
            if report.failure is not None or not report.complete:
                trouble = report.failure or report.interrupted or report.locked
                raise Wrong(f"{task} cannot be restored on machine {machine.number}: {trouble}")

    def _task(self, name: Name) -> TaskId:
        """Return the task of a store partition."""
        topics = set(self._sim.setup.scopes[name[0]])
        stream = next(stream for stream, inputs in self._sim.setup.streams.items() if topics <= set(inputs))
        return TaskId(stream, name[2])

    def _check_position(
        self,
        task: TaskId,
        name: Name,
        found: Mapping[TopicPartition, int],
        positions: Mapping[TopicPartition, int],
    ) -> None:
        """The position in the changelog is the committed offset of each input, or there are only markers in between."""
        scope, store, number = name
        log = self._sim.broker.logs[TopicPartition(self._sim.changelogs[scope, store], number)]
        records = [entry for entry in log.read(0, log.end) if entry.key == POSITION_KEY]
        last = Position.decode(records[-1].value or b"") if records else Position(0, None, 1, None)
        if last.inputs is not None and sum(last.inputs.values()) != last.input_offset:
            raise Wrong(f"the position of store {store} of {task} is inconsistent: {last}")
        for each, reached in found.items():
            position, committed = (last.inputs or {}).get(each.topic, last.input_offset), positions[each]
            history = self._sim.broker.logs[each].history(committed)
            missing = [unique_id(entry) for entry in history if entry.offset >= position]
            if missing or position != reached or (self._sim.setup.transactional and position > committed):
                raise Wrong(
                    f"store {store} of {task} is at {reached} of {each}, its changelog at {position}, and the group at "
                    f"{committed}; the records {missing} are in between"
                )

    def _compare(
        self,
        machine: Machine,
        store: str,
        task: TaskId,
        found: dict[bytes, bytes],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        """Compare what is visible in a store partition with the model's state at offsets of the inputs."""
        if trouble := trouble_with_timers(machine.content((task.stream, store, task.partition))[0]):
            raise Wrong(f"in store {store} of {task} on machine {machine.number}, {trouble}")
        model = Model(self._sim.setup, task.stream, ended=self._sim.ended)
        model.run(self._history(task, offsets))
        offset = {each: offsets[each] for each in self._sim.spec.topology.inputs(task)}
        expected = model.dump(store)
        if self._sim.setup.transactional:
            if found != expected:
                different = {
                    key: (found.get(key), expected.get(key))
                    for key in {**found, **expected}
                    if found.get(key) != expected.get(key)
                }
                raise Wrong(
                    f"store {store} of {task} at {offset} on machine {machine.number}: found, expected {different}"
                )
            return
        for key, data in expected.items():
            if key.endswith(b'"n"') and int(found.get(key, b"0")) < int(data):
                raise Wrong(
                    f"store {store} of {task} at {offset} on machine {machine.number}: {found.get(key)!r} < {data!r}"
                )

    def _history(self, task: TaskId, ends: Mapping[TopicPartition, int] | None = None) -> list[Entry]:
        """Return the records of a task in the order in which they are to be processed, up to offsets of its inputs."""
        logs, inputs = self._sim.broker.logs, self._sim.spec.topology.inputs(task)
        return merged(logs[place].history(None if ends is None else ends[place]) for place in inputs)

    def _places(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in range(self._sim.broker.topics[topic])]

    def _logs(self, topic: str) -> list[Log]:
        return [self._sim.broker.logs[place] for place in self._places(topic)]


def _lines(pairs: list[Pair]) -> str:
    return "\n".join(f"  {key!r} {value}" for key, value in pairs)
