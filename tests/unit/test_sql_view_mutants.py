"""Random views find mistakes: each mutant of the operators below views is found among a few hundred of them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamrt.dataframe import StreamingDataFrame
from streamrt.relations import row_join
from streamrt.relations.condense import _Changes
from streamrt.relations.group_aggregate import GroupAggregate
from streamrt.relations.over import OverChanges
from streamrt.relations.row_bag import count_row, take_row
from streamrt.relations.top import TopRows
from streamrt.runtime.tasks.chain.work_in_flight import WorkInFlight
from streamrt.sql.binding import windows
from streamrt.sql.binding.windows import WindowsOf
from streamrt.state.encoding import dumps_exact
from streamrt.windows import fixed
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


def begin_window_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row at the start of a window is in the one before."""
    original = windows.bound_of_window
    earlier = timedelta(microseconds=1)
    monkeypatch.setattr(
        windows, "bound_of_window", lambda size, offset, shift, time: original(size, offset, shift, time - earlier)
    )


def lose_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is not in the first of its windows."""
    original = WindowsOf.__call__
    monkeypatch.setattr(WindowsOf, "__call__", lambda self, row: [*original(self, row)][:-1])


def lose_final_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is not in the first of its windows that close, if there are several."""
    original = fixed.window_starts

    def mutant(*arguments: int) -> range:
        starts = original(*arguments)
        return starts[1:] or starts

    monkeypatch.setattr(fixed, "window_starts", mutant)


def count_late_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row counts that comes after its window has closed."""
    original = fixed._Windows.__init__

    def mutant(self: Any, operator: Any, child: Any, late: Any) -> None:
        original(self, operator, child, late)
        self._open_for += 2000

    monkeypatch.setattr(fixed._Windows, "__init__", mutant)


def part_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are the gap apart are in two sessions."""
    original = StreamingDataFrame.session_window
    monkeypatch.setattr(
        StreamingDataFrame, "session_window", lambda self, gap, *rest, **named: original(self, gap - 1, *rest, **named)
    )


def lose_held_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that are held are not passed on before the commit."""

    def mutant(self: WorkInFlight, patience_s: float | None = None) -> bool:
        self.drop()
        return True

    monkeypatch.setattr(WorkInFlight, "drain", mutant)


def keep_former_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that is made of several has the former row of the last one."""
    original = _Changes.add

    def mutant(self: _Changes, value: Any, key: Any, timestamp: int, headers: Any) -> None:
        original(self, value, key, timestamp, headers)
        place = key if type(key) is str else dumps_exact(key)
        self._changes[place][0] = value[0]

    monkeypatch.setattr(_Changes, "add", mutant)


def forget_other_partners(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that loses a partner by a condition counts as one without any."""
    monkeypatch.setattr(row_join._Side, "_has_other_match", lambda *arguments: False)


def _parts(key: Any) -> tuple[Any, ...]:
    return tuple(key) if isinstance(key, list | tuple) else (key,)


FOUND: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    lose_null_group: 1,
    retract_without_row: 13,
    lose_top: 21,
    keep_outer_rows: 126,
    keep_rows_of_over: 45,
    lose_peers: 181,
    shift_frames: 45,
    begin_window_late: 3,
    lose_hop: 43,
    lose_final_hop: 12,
    count_late_rows: 8,
    part_sessions: 180,
    lose_held_changes: 1,
    keep_former_rows: 10,
    forget_other_partners: 6,
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
