"""Checks that must hold of views in SQL: whatever has gone wrong, their rows are those of the query over the present rows.

Exactly once, no committed change takes back a row that is not there, and in the end the rows are those of the query. At least
once, records may be processed again, and counts of equal rows may be higher; in the end, each row of the query was written.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from streamrt.models import TopicPartition
from streamrt.topology import TaskId
from tests.sim.checks import Checks
from tests.sim.driver import Wrong
from tests.sim.stores import Machine
from tests.sim.viewing import RESULT, answer, present_rows

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

Row = tuple[Any, ...]


class ViewChecks(Checks):
    """Compares the committed rows of a view with DuckDB.

    Args:
        sim: the world.
    """

    compared = 0
    """How many rows were compared."""

    def __init__(self, sim: "Simulation") -> None:
        super().__init__(sim)

    def durable(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Not compared: not every record has an output."""

    def outputs(self, *, final: bool = False) -> None:
        rows, written = self._read_rows()
        if self._sim.setup.transactional:
            wrong = {row: count for row, count in rows.items() if count < 0}
            # Partitions of the result are read one after the other, so only a whole result has no negative counts.
            if final and wrong:
                raise Wrong(f"the view took back what it did not have: {wrong}")
        if not final:
            return
        expected = Counter(self._answer())
        self.compared += expected.total()
        if self._sim.setup.transactional:
            if +rows != expected:
                raise Wrong(f"the view has {dict(rows - expected)} too much and {dict(expected - rows)} too little")
        elif missing := set(expected) - written:
            raise Wrong(f"the view never had {missing}")

    def _read_rows(self) -> tuple["Counter[Row]", set[Row]]:
        """Return the rows of the result, how often each is there, and all that there ever were."""
        rows: Counter[Row] = Counter()
        written: set[Row] = set()
        for log in self._logs(RESULT):
            for entry in log.history():
                change = orjson.loads(entry.value or b"null")
                if change["before"] is not None:
                    rows[tuple(change["before"].values())] -= 1
                if change["after"] is not None:
                    row = tuple(change["after"].values())
                    rows[row] += 1
                    written.add(row)
        return rows, written

    def _answer(self) -> list[Row]:
        rows = {}
        for topic, name in (("in", "one"), ("other", "two")):
            present: dict[bytes, dict[str, Any]] = {}
            for log in self._logs(topic):
                present |= present_rows(log.history())
            rows[name] = present.values()
        return answer(self._sim.setup.viewing, rows)

    def _compare(
        self,
        machine: Machine,
        store: str,
        task: TaskId,
        found: dict[bytes, bytes],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        """Not compared: the outputs tell the state."""
