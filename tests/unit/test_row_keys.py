"""Keys that rows get: the changes of a key come from several partitions, in any order among these."""

import random
from collections import Counter
from typing import Any, cast

import pytest

from streamrt.errors import InvalidOperationError
from streamrt.joins.merging import merge_of
from streamrt.relations import Consolidate, DistinctRows, JoinRows, NumberRows
from streamrt.state import MemoryStore
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler
from tests.support import LONG
from tests.unit.bags import Row
from tests.unit.joined import Joined, end_of_commit

SPEC = StoreSpec("rows", MemoryStore, TimedTransaction)


class OneInput:
    """An operator in the form of one with several inputs.

    Args:
        operator: the operator.
    """

    def __init__(self, operator: Operator) -> None:
        self.operator, self.name = operator, operator.name

    def describe(self) -> str:
        return self.operator.describe()

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:
        return (self.operator.build(child, node, context),)


def run(operator: Operator) -> Joined:
    return Joined(cast("Any", OneInput(operator)))


def changes_of_partitions(dice: random.Random, rows: int) -> list[list[Row | None]]:
    """Return changes of the row of a key, which goes from one partition to another, in a random order among partitions."""
    partitions: list[list[list[Row | None]]] = [[] for _ in range(3)]
    place, former = 0, None
    for _ in range(rows):
        row = None if dice.random() < 0.2 else {"k": 1, "n": dice.randrange(3)}
        to = dice.randrange(3)
        if to == place and (former is not None or row is not None):
            partitions[place].append([former, row])
        else:
            if former is not None:
                partitions[place].append([former, None])
            if row is not None:
                partitions[to].append([None, row])
        place, former = to, row
    found: list[list[Row | None]] = []
    while any(partitions):
        found.append(dice.choice([each for each in partitions if each]).pop(0))
    return found


@pytest.mark.parametrize("seed", range(200 if LONG else 20))
def test_a_key_has_the_row_that_is_left(seed: int) -> None:
    dice = random.Random(seed)
    consolidated = run(Consolidate(SPEC, ("k",)))
    present: Counter[tuple[Any, ...]] = Counter()
    row = None
    for change in changes_of_partitions(dice, 30):
        before, after = change
        present[() if before is None else tuple(before.items())] -= 1
        present[() if after is None else tuple(after.items())] += 1
        for (old, new), key, *_ in consolidated.feed(0, change, 1, 5):
            assert (old, key) == (row, 1)
            row = new
        assert present[() if row is None else tuple(row.items())] > 0 or not any(+present)
        if dice.random() < 0.3:
            consolidated.commit(end_of_commit(dice))
    left = [dict(items) for items, count in present.items() if items and count]
    assert left == ([] if row is None else [row])


@pytest.mark.parametrize("seed", range(50 if LONG else 10))
def test_of_several_rows_the_last_one_counts(seed: int) -> None:
    dice = random.Random(seed)
    consolidated = run(Consolidate(SPEC, ("k",)))
    added: list[Row] = []
    for _ in range(40):
        if added and dice.random() < 0.5:
            former = added.pop(dice.randrange(len(added)))
            consolidated.feed(0, [former, None], 1, 0)
        else:
            added.append({"n": dice.randrange(4)})
            consolidated.feed(0, [None, added[-1]], 1, 0)
        rows: list[Row] = []
        for (_, after), *_ in consolidated.outputs:
            rows.append(after)
        if not added:
            assert rows[-1] is None
        else:
            assert rows[-1] in added


def test_too_many_rows_of_a_key_are_refused() -> None:
    consolidated = run(Consolidate(SPEC, ("k",)))
    for number in range(1_000):
        consolidated.feed(0, [None, {"k": 7, "n": number}], 7, 0)
    with pytest.raises(InvalidOperationError, match="more than 1,000 different rows of the key 7: k must"):
        consolidated.feed(0, [None, {"k": 7, "n": 1_000}], 7, 0)


def test_what_was_not_added_is_not_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    for operator in (Consolidate(SPEC, ("k",)), DistinctRows(SPEC), NumberRows("id", SPEC)):
        caplog.clear()
        assert run(operator).feed(0, [{"k": 1}, None], ["d"], 0) == []
        assert "was to take back a row" in caplog.text


def test_a_changed_join_keeps_something_else() -> None:
    merge = merge_of("join", "keep-left")
    joins = [
        JoinRows("inner", merge, SPEC, ("a", "b")),
        JoinRows("left", merge, SPEC, ("a", "b")),
        JoinRows("inner", merge, SPEC, ("a", "c")),
        JoinRows("inner", merge, SPEC, ("a", "b"), lambda one, other: True),
        JoinRows("inner", merge, SPEC, ("a", "b"), None, True),
    ]
    assert len({join.keeps() for join in joins}) == len(joins)
    assert Consolidate(SPEC, ("k",)).keeps() != Consolidate(SPEC, ("k", "l")).keeps()
