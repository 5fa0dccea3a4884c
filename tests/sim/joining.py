"""Checks that must hold where frames meet behind exchanges.

What a merge must have seen follows from the logs: all older records of the other side that were in the input topics when the
record reached the merge. Only those need not come first that stand behind newer ones in their repartition topic, where the
records of several input partitions are mixed; an as-of join finds these as well.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import orjson

from streamrt.models import TopicPartition
from tests.sim.broker import Entry
from tests.sim.checks import Checks
from tests.sim.driver import Wrong
from tests.sim.meeting import inputs_of
from tests.sim.stores import Machine

if TYPE_CHECKING:
    from streamrt.topology import TaskId
    from tests.sim.simulation import Simulation


class JoinChecks(Checks):
    """Compares what each record has met with what was there.

    Args:
        sim: the world.
    """

    def __init__(self, sim: "Simulation") -> None:
        super().__init__(sim)
        # What was in the input topics when a record first reached the merge: the ends.
        self._ends: dict[int, Mapping[TopicPartition, int]] = {}
        self.compared = 0
        """How many records of the other side had to come first."""

    def arrived(self, place: TopicPartition, value: bytes | None) -> None:
        """Note what is there when a record arrives at the merge."""
        if place.topic in inputs_of(self._sim.setup.joining):
            logs = self._sim.broker.logs
            ends = {each: logs[each].stable for each in logs if each.topic in ("in", "other")}
            self._ends.setdefault(orjson.loads(value or b"{}")["u"], ends)

    def durable(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Not compared: what a record meets says more."""

    def outputs(self, *, final: bool = False) -> None:
        sides = [self._side(topic) for topic in inputs_of(self._sim.setup.joining)]
        found: set[int] = set()
        for log in self._logs("out"):
            for entry in log.history():
                value = orjson.loads(entry.value or b"")
                unique = value["u"]
                if unique in found and self._sim.setup.transactional:
                    raise Wrong(f"record {unique} has more than one output")
                found.add(unique)
                own = 0 if self._sim.homes[unique].topic == "in" else 1
                self._check(unique, set(value["seen"]), sides[1 - own])
        # Right records of a join emit nothing.
        alone = self._sim.setup.joining == "asof"
        wanted = {unique for unique, home in self._sim.homes.items() if home.topic == "in" or not alone}
        if final and found != wanted:
            raise Wrong(f"records {sorted(wanted - found)} have no output")

    def _side(self, topic: str) -> dict[int, tuple[Entry, int]]:
        """Return the committed records of one side by id, each with the newest time before it in its partition."""
        found: dict[int, tuple[Entry, int]] = {}
        for log in self._logs(topic):
            newest = -1
            for entry in log.history():
                found.setdefault(orjson.loads(entry.value or b"")["u"], (entry, newest))
                newest = max(newest, entry.timestamp)
        return found

    def _check(self, unique: int, seen: set[int], others: Mapping[int, tuple[Entry, int]]) -> None:
        group, time = self._sim.values[unique]
        for other, (group_of_other, time_of_other) in self._sim.values.items():
            home = self._sim.homes[other]
            if group_of_other != group or time_of_other >= time or home.topic == self._sim.homes[unique].topic:
                continue
            if self._sim.offsets[other] >= self._ends[unique].get(home, 0):
                continue
            self.compared += 1
            if self._sim.setup.joining == "asof":
                met = any(time_of_other <= self._sim.values[each][1] <= time for each in seen)
            else:
                # It may stand behind a newer one.
                met = other in seen or (other in others and others[other][1] >= time)
            if not met:
                raise Wrong(
                    f"record {unique} at {time} has met {sorted(seen)} and not {other} at {time_of_other}, which was there"
                )

    def _compare(
        self,
        machine: Machine,
        store: str,
        task: "TaskId",
        found: dict[bytes, bytes],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        """Not compared: the outputs tell the state."""
