"""Checks that must hold of tables: whatever has gone wrong, they are what the present rows of their inputs make them."""

from collections.abc import Mapping
from typing import Any

import orjson

from streamrt.kafka.partitioner import partition_for
from streamrt.models import TopicPartition
from streamrt.topology import TaskId
from tests.sim.broker import Entry
from tests.sim.checks import Checks
from tests.sim.driver import Wrong
from tests.sim.relating import GROUPS, JOINED, TOTALS, Pair, TablesModel, follow_totals, totals_of
from tests.sim.stores import Machine

_TABLES = ("in", "other")


class TableChecks(Checks):
    """Compares rows, changes and totals with a model.

    Exactly once, the committed changes are those of the model, in its order. At least once, records may be processed again,
    and in the end the rows are right all the same; totals count each joined row at least once.
    """

    compared = 0
    """How many rows of stores were compared."""

    def durable(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Not compared: not every record has an output."""

    def outputs(self, *, final: bool = False) -> None:
        if self._sim.setup.transactional:
            self._check_joined(final=final)
            self._check_totals(final=final)
        elif final:
            self._check_written()
            self._check_least_totals()

    def _check_joined(self, *, final: bool) -> None:
        expected: dict[tuple[int, TopicPartition], list[Pair]] = {}
        for task in (each for each in self._sim.tasks if each.stream != GROUPS):
            for key, change in self._model(task)[1]:
                self._expect(expected, task, JOINED, key, change)
                for group, rows in _regroup(change["before"], change["after"]):
                    self._expect(expected, task, GROUPS, orjson.dumps(group), rows)
        found: dict[tuple[int, TopicPartition], list[Pair]] = {}
        for topic in (JOINED, GROUPS):
            for at in self._places(topic):
                for entry in self._sim.broker.logs[at].history():
                    value = orjson.loads(entry.value or b"")
                    row = next(filter(None, value)) if topic == GROUPS else value["after"] or value["before"]
                    origin = partition_for(row["k"].encode(), self._sim.partitions)
                    found.setdefault((origin, at), []).append((entry.key or b"", value))
        for place in {**expected, **found}:
            _compare_changes(found.get(place, []), expected.get(place, []), f"task {place[0]} in {place[1]}", final)

    def _expect(self, expected: dict[Any, list[Pair]], task: TaskId, topic: str, key: bytes, value: Any) -> None:
        at = TopicPartition(topic, partition_for(key, self._sim.broker.topics[topic]))
        expected.setdefault((task.partition, at), []).append((key, value))

    def _check_totals(self, *, final: bool) -> None:
        for at in self._places(GROUPS):
            expected: dict[TopicPartition, list[Pair]] = {}
            for key, change in follow_totals(self._sim.broker.logs[at].history(), rows_in_groups=True):
                target = TopicPartition(TOTALS, partition_for(key, self._sim.broker.topics[TOTALS]))
                expected.setdefault(target, []).append((key, change))
            for target in self._places(TOTALS):
                pairs = _pairs(self._sim.broker.logs[target].history())
                found = [pair for pair in pairs if partition_for(pair[0], self._sim.partitions) == at.partition]
                _compare_changes(found, expected.get(target, []), f"{at} in {target}", final)
        if final:
            self._check_last_totals()

    def _check_last_totals(self) -> None:
        """The totals are those of the joined rows that there are in the end."""
        tasks = [each for each in self._sim.tasks if each.stream != GROUPS]
        expected = totals_of(row for task in tasks for row in self._model(task)[0].joined().values())
        found: dict[str, Any] = {}
        for log in self._logs(TOTALS):
            found.update((orjson.loads(key), change["after"]) for key, change in _pairs(log.history()))
        if (present := {group: row for group, row in found.items() if row is not None}) != expected:
            raise Wrong(f"the totals are {present} instead of {expected}")

    def _check_written(self) -> None:
        """At least once: each present row was written, and each row that is gone was deleted."""
        for task in (each for each in self._sim.tasks if each.stream != GROUPS):
            model, changes = self._model(task)
            present = model.joined()
            for key in {key for key, _ in changes}:
                at = TopicPartition(JOINED, partition_for(key, self._sim.broker.topics[JOINED]))
                written = [
                    value["after"] for found, value in _pairs(self._sim.broker.logs[at].history()) if found == key
                ]
                if present.get(key) not in written:
                    raise Wrong(f"the joined row of {key!r} is {present.get(key)}, and {at} has only {written}")

    def _check_least_totals(self) -> None:
        for at in self._places(GROUPS):
            changes = follow_totals(self._sim.broker.logs[at].history(), rows_in_groups=False)
            for key, change in dict(changes).items():
                row = change["after"]
                target = TopicPartition(TOTALS, partition_for(key, self._sim.broker.topics[TOTALS]))
                rows = [
                    value["after"] for found, value in _pairs(self._sim.broker.logs[target].history()) if found == key
                ]
                if not any(total["n"] >= row["n"] and total["most"] >= row["most"] for total in rows):
                    raise Wrong(f"the totals of {key!r} are at least {row}, and {target} has {rows[-3:]}")

    def _compare(
        self,
        machine: Machine,
        store: str,
        task: TaskId,
        found: dict[bytes, bytes],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        if task.stream == GROUPS:
            return
        inputs = self._sim.spec.topology.inputs(task)
        # A store of one table has no position of the other one.
        offsets = {each: offset for each, offset in offsets.items() if each in inputs}
        if not self._sim.setup.transactional and any(
            any(self._sim.broker.logs[each].read(offset, 1 << 62)) for each, offset in offsets.items()
        ):
            # It may have what is processed again after its position.
            return
        model, _ = self._model(task, {each: offsets.get(each, 0) for each in inputs})
        expected = model.dump(store)
        # Times are not those of the model where a row was inserted again by a record that is processed again.
        cut = 0 if self._sim.setup.transactional else 8
        self.compared += len(expected)
        if {key: row[cut:] for key, row in found.items()} != {key: row[cut:] for key, row in expected.items()}:
            raise Wrong(
                f"store {store} of {task} at {dict(offsets)} on machine {machine.number} is {found}, not {expected}"
            )

    def _model(self, task: TaskId, ends: Mapping[TopicPartition, int] | None = None) -> tuple[TablesModel, list[Pair]]:
        model = TablesModel(self._sim.setup.relating)
        topics = {id(entry): topic for topic in _TABLES for entry in self._of_topic(task, topic)}
        return model, model.run((topics[id(entry)], entry) for entry in self._history(task, ends))

    def _of_topic(self, task: TaskId, topic: str) -> list[Entry]:
        return self._sim.broker.logs[TopicPartition(topic, task.partition)].history()


def _regroup(before: Any, after: Any) -> list[tuple[str, list[Any]]]:
    """Return what a change of a joined row is for its groups."""
    if before is not None and after is not None and before["g"] == after["g"]:
        return [(after["g"], [before, after])]
    one = [] if before is None else [(before["g"], [before, None])]
    return one if after is None else [*one, (after["g"], [None, after])]


def _pairs(entries: list[Entry]) -> list[Pair]:
    return [(entry.key or b"", orjson.loads(entry.value or b"")) for entry in entries]


def _compare_changes(found: list[Pair], expected: list[Pair], where: str, final: bool) -> None:
    if found != expected[: len(found)] or (final and len(found) != len(expected)):
        raise Wrong(f"the changes of {where} are\n{_format(found)}\ninstead of\n{_format(expected)}")


def _format(pairs: list[Pair]) -> str:
    return "\n".join(f"  {key!r} {value}" for key, value in pairs)
