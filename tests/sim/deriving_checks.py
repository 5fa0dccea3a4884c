"""Checks that must hold of derived tables: whatever has gone wrong, they are what a batch makes of the rows that there are.

Behind one exchange, the committed result is after each commit that of the records up to some place in the exchange, which
never goes back. What two tables make passes several exchanges, which have no common order: at any time, each joined row is
that of a left and a right row that there were, and in the end that of the present ones. At least once, records may be
processed again; in the end, each row was written that there is, and each was deleted that is gone.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson

from streamrt.models import TopicPartition
from streamrt.relations.exact_keys import make_digest
from streamrt.topology import TaskId
from tests.sim.broker import Entry
from tests.sim.checks import Checks
from tests.sim.deriving import (
    PAIRED,
    RESULT,
    TWO_INPUTS,
    Answer,
    Follower,
    Item,
    answer_foreign,
    answer_pairs,
    answer_sets,
    follower_of,
    foreign_key,
    merge_rows,
    pair_rows,
    part_of,
    row_of,
)
from tests.sim.driver import Wrong
from tests.sim.maintaining import MAINTAINED
from tests.sim.stores import Machine

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation


class DerivedChecks(Checks):
    """Compares the committed rows of a result with a batch answer.

    Args:
        sim: the world.
    """

    compared = 0
    """How many rows were compared."""

    def __init__(self, sim: "Simulation") -> None:
        super().__init__(sim)
        # How many records of each partition of the exchange the result had at the last look.
        self._reached: dict[TopicPartition, int] = {}

    def durable(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Not compared: not every record has an output."""

    def outputs(self, *, final: bool = False) -> None:
        if self._sim.setup.deriving in TWO_INPUTS:
            self._check_joined(final=final)
        else:
            self._check_followed(follower_of(self._sim.setup.deriving), final=final)

    # -- Behind one exchange -----------------------------------------------------------------------------------------

    def _check_followed(self, follower: Follower, *, final: bool) -> None:
        if not final and any(log.stable < log.end for log in self._logs(follower.result)):
            # The marker of a transaction is in some partitions, and not yet in others.
            return
        written: Answer = {}
        former: dict[Any, list[Any]] = {}
        for log in self._logs(follower.result):
            for entry in log.history():
                key, row = follower.key_of(orjson.loads(entry.key or b"")), self._row_in(follower, entry)
                former.setdefault(key, []).append(row)
                written[key] = row
        present = {key: row for key, row in written.items() if row is not None}
        self.compared += len(present)
        values = {
            at: list(map(follower.read, self._sim.broker.logs[at].history())) for at in self._places(follower.exchange)
        }
        if not self._sim.setup.transactional:
            if final:
                _check_written(former, _merge(follower.answer(each) for each in values.values()))
            return
        for at, own in values.items():
            found = {key: row for key, row in present.items() if self._home(follower, key) == at.partition}
            begin = len(own) if final else self._reached.get(at, 0)
            # In the end, nothing is left that is to be deleted.
            ends = range(begin, len(own) + 1)
            place = next((n for n in ends if follower.fits(own[:n], found, final=final)), None)
            if place is None:
                raise Wrong(f"{follower.result} has of {at} {found}, and all {len(own)} make {follower.answer(own)}")
            self._reached[at] = place
        if self._sim.setup.deriving in MAINTAINED:
            for key, rows in former.items():
                if any(one == other for one, other in pairwise([None, *rows])):
                    raise Wrong(f"the row of {key} was written, and had not changed: {rows}")

    def _row_in(self, follower: Follower, entry: Entry) -> Any:
        value = orjson.loads(entry.value or b"null")
        return value["after"] if follower.result == RESULT else value

    def _home(self, follower: Follower, key: Any) -> int:
        """Return the partition of the exchange that a row comes from."""
        record_key = orjson.dumps(key if isinstance(key, str) else key[0])
        return self._sim.partition_of(record_key)

    # -- Made of two tables ------------------------------------------------------------------------------------------

    def _check_joined(self, *, final: bool) -> None:
        items = [
            (topic, entry.key or b"", orjson.loads(entry.value or b"null"), entry.timestamp)
            for topic in ("in", "other")
            for log in self._logs(topic)
            for entry in log.history()
        ]
        kind = self._sim.setup.deriving
        possible = _possible_rows(items, kind)
        former: dict[Any, list[Any]] = {}
        for log in self._logs(RESULT):
            for entry in log.history():
                key, value = (entry.key or b"").decode().strip('"'), orjson.loads(entry.value or b"")
                rows = former.setdefault(key, [None])
                if self._sim.setup.transactional and value["before"] != rows[-1]:
                    raise Wrong(f"the row of {key} was {rows[-1]}, and a change has {value}")
                if value["after"] is not None and value["after"] not in possible.get(key, ()):
                    raise Wrong(f"the row of {key} is {value['after']}, of possible {possible.get(key)}")
                rows.append(value["after"])
                self.compared += 1
        if not final:
            return
        if kind in PAIRED:
            expected = answer_pairs(items) if kind == "pairs" else answer_sets(items)
        else:
            expected = answer_foreign(items, left_join=kind == "foreign-left")
        if not self._sim.setup.transactional:
            _check_written(former, expected)
            return
        present = {key: rows[-1] for key, rows in former.items() if rows[-1] is not None}
        if present != expected:
            raise Wrong(f"the joined rows are {present} instead of {expected}")

    def _compare(
        self,
        machine: Machine,
        store: str,
        task: TaskId,
        found: dict[bytes, bytes],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        """Not compared: the outputs tell the state."""


def _merge(answers: Any) -> Answer:
    return {key: row for answer in answers for key, row in answer.items()}


def _check_written(former: Mapping[Any, list[Any]], expected: Answer) -> None:
    """At least once: each present row was written, and each row that is gone was deleted."""
    for key in {**former, **expected}:
        if expected.get(key) not in former.get(key, [None]):
            raise Wrong(f"the row of {key} is {expected.get(key)}, and was written as {former.get(key)}")


def _possible_rows(items: list[Item], kind: str) -> dict[str, list[Any]]:
    """Return the rows that there may have been, by key: those of all rows that there ever were in the inputs."""
    if kind in PAIRED:
        return _possible_pairs(items) if kind == "pairs" else _possible_parts(items)
    left_join = kind == "foreign-left"
    rights: dict[bytes, list[Any]] = {}
    for topic, key, value, timestamp in items:
        if topic == "other" and (row := row_of(value, key, timestamp, None)) is not None:
            rights.setdefault(key, []).append(row)
    found: dict[str, list[Any]] = {}
    for topic, key, value, timestamp in items:
        if topic == "in" and (row := row_of(value, key, timestamp, None)) is not None:
            matches = rights.get(foreign_key(row), [])
            found.setdefault(key.decode(), []).extend(
                merge_rows(row, right) for right in (*matches, *((None,) if left_join else ()))
            )
    return found


def _all_rows(items: list[Item], topic: str) -> list[Any]:
    rows = [row_of(value, key, timestamp, None) for name, key, value, timestamp in items if name == topic]
    return [row for row in rows if row is not None]


def _possible_pairs(items: list[Item]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    rights = _all_rows(items, "other")
    for left in _all_rows(items, "in"):
        matches = [right for right in rights if right["k"] == left["f"]]
        found.setdefault(left["k"], []).extend(pair_rows(left, right) for right in (None, *matches))
    for right in rights:
        row = pair_rows(None, right)
        found.setdefault(row["id"], []).append(row)
    return found


def _possible_parts(items: list[Item]) -> dict[str, list[Any]]:
    parts = [part_of(row) for row in _all_rows(items, "in")]
    keys = ((part, f"{make_digest(part)}-{number}") for part in parts for number in range(1, len(parts) + 1))
    return {key: [{**part, "id": key}] for part, key in keys}
