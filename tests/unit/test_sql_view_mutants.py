"""Random views find mistakes: each mutant of the operators below views is found among a few hundred of them."""

from collections.abc import Callable
from typing import Any

import pytest

from streamrt.relations import row_join
from streamrt.relations.group_aggregate import GroupAggregate
from streamrt.relations.over import OverChanges
from streamrt.relations.row_bag import count_row, take_row
from streamrt.relations.top import TopRows
from streamrt.windows.frames import Frame, OrderedRows
from tests.sql.random_cases import make_case, run_case
from tests.support import LONG

pytestmark = pytest.mark.slow

MOST = 400
"""Cases after which a mutant counts as not found."""
Wrap = Callable[[Any, Any], tuple[Any, Any] | None]


def change_input(monkeypatch: pytest.MonkeyPatch, operator: Any, wrap: Wrap) -> None:
    """Let an operator get other values and keys; None for no record at all."""
    build = operator.build

    def mutant(self: Any, child: Any, node: Any, context: Any) -> Any:
        run = build(self, child, node, context)

        def handle(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            changed = wrap(value, key)
            if changed is not None:
                run(*changed, timestamp, headers)

        return handle

    monkeypatch.setattr(operator, "build", mutant)


def lose_null_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of the group of NULL are skipped."""
    change_input(monkeypatch, GroupAggregate, lambda value, key: None if None in _parts(key) else (value, key))


def retract_without_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken back stays in its group."""
    change_input(
        monkeypatch,
        GroupAggregate,
        lambda value, key: (
            ((None, value[1]), key) if isinstance(value, list | tuple) and value[1] is not None else (value, key)
        ),
    )


def keep_rows_that_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of a join that is taken back stays there, if there are others that are equal to it."""

    def mutant(bag: Any, text: str, prefix: bytes, sets: Any) -> bool:
        return True if count_row(bag, text, prefix, sets) > 1 else take_row(bag, text, prefix, sets)

    monkeypatch.setattr(row_join, "take_row", mutant)


def keep_outer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row without a partner is not taken back when it goes."""
    change = row_join._Side._change_own

    def mutant(self: Any, other: Any, prefix: bytes, transaction: Any, texts: Any) -> Any:
        before, after = change(self, other, prefix, transaction, texts)
        return (None, after) if before is not None and after is None else (before, after)

    monkeypatch.setattr(row_join._Side, "_change_own", mutant)


def lose_top(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that leave a ranking stay in it."""
    change_input(
        monkeypatch,
        TopRows,
        lambda value, key: None if isinstance(value, list | tuple) and value[1] is None else (value, key),
    )


def keep_rows_of_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that changes stays in its group as it was."""
    change_input(
        monkeypatch, OverChanges, lambda value, key: ((None, value[1]) if value[1] is not None else value, key)
    )


def lose_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with equal values are not in the frames of each other."""
    monkeypatch.setattr(
        OrderedRows,
        "of",
        classmethod(lambda cls, orders, rows, *args, **options: cls(rows, [(n, n + 1) for n in range(len(rows))])),
    )


def shift_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames begin one row too late."""
    bounds = Frame.bounds
    monkeypatch.setattr(Frame, "bounds", lambda self, rows: [(first + 1, end) for first, end in bounds(self, rows)])


def _parts(key: Any) -> tuple[Any, ...]:
    return tuple(key) if isinstance(key, list | tuple) else (key,)


FOUND: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    lose_null_group: 1,
    retract_without_row: 13,
    lose_top: 21,
    keep_outer_rows: 57,
    keep_rows_of_over: 45,
    lose_peers: 99,
    shift_frames: 45,
}
"""Seeds that find mutants: ordinary runs try no other ones."""


@pytest.mark.parametrize(
    "mutant",
    [*FOUND, *([keep_rows_that_go] if LONG else [])],
    ids=lambda each: each.__name__,
)
def test_a_mutant_is_found(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    seeds = range(1, MOST) if LONG else [FOUND[mutant]]
    assert any(run_case(make_case(seed)).kind in ("wrong", "failed") for seed in seeds)
