"""What joins by columns keep: across commits, restarts, moves, skipped records, and changes that take several portions."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from streamrt.joins.merging import merge_of
from streamrt.models import Tick
from streamrt.relations import Change, JoinHow, JoinRows
from streamrt.state import MemoryStore, RocksDBStore, Store
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import Node
from tests.support import LONG
from tests.unit.bags import Bag, Row, counted
from tests.unit.joined import Joined, end_of_commit
from tests.unit.test_row_joins import join, less

SPEC = StoreSpec("join", MemoryStore, TimedTransaction)
HOWS: tuple[JoinHow, ...] = get_args(JoinHow)


class Stopping(Joined):
    """A join that must stop after some steps.

    Args:
        operator: the join.
        portion: number of steps.
        kind: the kind of store.
        folder: where the store is.
    """

    def __init__(
        self, operator: JoinRows, portion: int, folder: Path = Path("unused"), kind: type[Store] = MemoryStore
    ) -> None:
        self.portion, self.unfinished = portion, False
        super().__init__(operator, folder, kind)

    def begin_portion(self, node: Node) -> Callable[[], bool]:
        left = self.portion

        def must_stop() -> bool:
            nonlocal left
            left -= 1
            self.unfinished = self.unfinished or left < 0
            return self.unfinished

        return must_stop

    def drain(self, dice: random.Random) -> None:
        """Commit, and tick, until no work is left."""
        while self.unfinished:
            self.commit(end_of_commit(dice))
            self.unfinished = False
            self.tick()

    def add_up(self) -> Counter[bytes]:
        """Return the rows of the result; none is taken back before it is added."""
        rows: Counter[bytes] = Counter()
        for (before, after), *_ in self.outputs:
            assert before != after
            if before is not None:
                rows.subtract(counted([before]))
                assert rows[next(iter(counted([before])))] >= 0
            if after is not None:
                rows.update(counted([after]))
        return +rows


def pick(dice: random.Random, rows: Bag, column: str, number: str) -> Change:
    """Return a change of a bag of rows of one key, and make it."""
    before = rows.pop(dice.randrange(len(rows))) if rows and dice.random() < 0.55 else None
    after = {column: 1, number: dice.randrange(12)} if before is None or dice.random() < 0.4 else None
    if after is not None:
        rows.append(after)
    return Change(before, after)


@pytest.mark.parametrize(("how", "kind"), [*((how, MemoryStore) for how in HOWS), ("outer", RocksDBStore)])
def test_a_join_keeps_its_rows(how: JoinHow, kind: type[Store], tmp_path: Path) -> None:
    for seed in range(40 if LONG else 2):
        dice = random.Random(seed)
        condition = dice.choice((None, less))
        operator = JoinRows(how, merge_of("join", "keep-left"), SPEC, ("a", "b"), condition)
        joined = Stopping(operator, dice.choice((1, 3, 1_000)), tmp_path / f"{seed}", kind)
        left: Bag = []
        right: Bag = []
        for number in range(60):
            side = dice.randrange(2)
            change = pick(dice, *((left, "a", "n"), (right, "b", "m"))[side])
            joined.feed(side, list(change), [1], number)
            # At times, the next change arrives before the portions of this one are done.
            if dice.random() < 0.9:
                joined.drain(dice)
                assert joined.add_up() == counted(join(left, right, how, ("a", "b"), condition)), (seed, number)
            joined.unfinished = False
            if dice.random() < 0.2:
                joined.commit(end_of_commit(dice))
        for side, rows in enumerate((left, right)):
            for row in rows:
                joined.feed(side, [row, None], [1], 100)
                joined.unfinished = True
                joined.drain(dice)
        assert joined.add_up() == Counter()
        joined.commit()
        assert list(joined.transaction.heads()) == []
        assert len(list(joined.run.partition.scan(b"\x00", b"\xff"))) <= 3, "only counters are left"


def test_a_row_with_many_partners_is_passed_on_in_portions(tmp_path: Path) -> None:
    partners, portion = 8_000, 1_000
    operator = JoinRows("inner", merge_of("join", "keep-left"), SPEC, ("a", "b"))
    joined = Stopping(operator, portion, tmp_path, RocksDBStore)
    for number in range(partners):
        joined.feed(0, [None, {"a": 1, "n": number}], [1], number)
    joined.commit()
    joined.feed(1, [None, {"b": 1, "m": 0}], [1], 5)
    turns = 0
    while joined.unfinished:
        assert len(joined.outputs) == portion * (turns + 1)
        joined.commit()
        joined.unfinished = False
        joined.tick()
        turns += 1
    assert turns == partners // portion - 1
    rows = [row for (_, row), *_ in joined.outputs]
    assert counted(rows) == counted({"a": 1, "b": 1, "m": 0, "n": number} for number in range(partners))
    assert {time for *_, time, _ in joined.outputs} == {5}


def test_a_result_that_fails_is_passed_over_in_the_next_portion() -> None:
    operator = JoinRows("inner", merge_of("join", "keep-left"), SPEC, ("a", "b"))
    joined = Stopping(operator, 2)
    fails: list[Any] = []

    def take(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        if value[1]["n"] in fails:
            fails.remove(value[1]["n"])
            raise ValueError("refused")
        joined.outputs.append((value, key, timestamp, headers))

    joined.inputs = operator.build_inputs(take, Node(2, (0, 1), operator, "test.py:1"), joined)
    for number in range(8):
        joined.feed(0, [None, {"a": 1, "n": number}], [1], 0)
    joined.feed(1, [None, {"b": 1}], [1], 0)
    fails.append(4)
    while joined.unfinished:
        joined.commit()
        joined.unfinished = False
        try:
            joined.ticks[-1](Tick(0))
        except ValueError:
            joined.unfinished = True
    assert sorted(row["n"] for (_, row), *_ in joined.outputs) == [0, 1, 2, 3, 5, 6, 7]


def test_a_row_that_is_not_there_is_not_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    operator = JoinRows("inner", merge_of("join", "keep-left"), SPEC, ("a", "b"))
    joined = Joined(operator)
    right: Row = {"b": 1}
    joined.feed(1, [None, right], [1], 0)
    assert joined.feed(0, [{"a": 1}, None], [1], 0) == []
    assert "was to take back a row" in caplog.text
    assert joined.feed(0, [None, {"a": 1}], [1], 0) == [(Change(None, {"a": 1, "b": 1}), None, 0, None)]
