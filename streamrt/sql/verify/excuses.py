"""Differences that are not mistakes: rows of windows that are open, and rows that records are missing in which came too late.

The query runs again: only with windows that are over for sure, and only with records that were in time for sure. What is
the same in all runs must be in the view.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from streamrt.kafka.completion_token import Offsets
from streamrt.sql.binding import plan as plans
from streamrt.sql.verify.batch_tables import TimedTable
from streamrt.sql.verify.comparison import (
    Comparison,
    Row,
    compare_again,
    fetch_answer,
    fetch_expected,
    pair_close_rows,
)
from streamrt.sql.verify.waiting import find_waits
from streamrt.tables.table import Table

__all__ = ["Excuses", "excuse_rows"]


class Excuses(NamedTuple):
    """What is left of differences, and what is excused.

    Attributes:
        differing: rows that differ, and must not.
        excused: other rows that differ, as they depend on records that may be late, or on windows that may be open.
        open_rows: number of rows that are missing because their windows are open, or they wait for earlier ones.
        late_records: number of records that may have come too late.
    """

    differing: Comparison
    excused: Comparison = Comparison([], [])
    open_rows: int = 0
    late_records: int = 0


def excuse_rows(
    connection: Any,
    plan: plans.Plan,
    tables: Mapping[str, tuple[Table, Offsets]],
    query: Callable[[int | None], str],
    differing: Comparison,
) -> Excuses:
    """Return which differences are mistakes.

    Args:
        connection: the connection to DuckDB, behind `compare_rows`. Its tables lose records that may be late.
        plan: the plan of the view.
        tables: the tables that it reads, with the offsets up to which it has, by their names.
        query: returns the text of the view with the windows that are over at a time in milliseconds; all of them for None.
        differing: the differences.
    """
    waits = find_waits(plan)
    if not waits or not (differing.missing or differing.surplus):
        return Excuses(differing)
    timed, ends, latest = {}, [], 0
    for name in dict.fromkeys(wait.table for wait in waits):
        table, until = tables[name]
        rows = table.scan(until=until, metadata=True).to_arrow()
        timed[name] = TimedTable(connection, name, rows, table.schema.time or "")
        known = timed[name].find_ends()
        latest = max((latest, *known))
        # A partition without records holds time back, and a filter may.
        sees_all = all(wait.sees_all for wait in waits if wait.table == name)
        ends += known if sees_all and len(known) == len(until) else [0]
    over = min(ends, default=0)
    expected = fetch_expected(connection)

    def leave_out(*, late: bool = False, waiting_at: int | None = None) -> int:
        return sum(
            table.leave_out([wait for wait in waits if wait.table == name], late=late, waiting_at=waiting_at)
            for name, table in timed.items()
        )

    only_over, answers = query(over), {}
    late_records = leave_out(late=True)
    if late_records:
        answers["late"] = fetch_answer(connection, query(None))
        leave_out(late=True, waiting_at=over)
        answers["both"] = fetch_answer(connection, only_over)
    held = leave_out(waiting_at=latest)
    # If other windows are over at one of these times, the unknown time of each operator decides which are.
    exact = leave_out(waiting_at=over) == held and only_over == query(latest) and not late_records
    answers["open"] = fetch_answer(connection, only_over)
    changes = {name: pair_close_rows(expected, rows) for name, rows in answers.items()}
    key = next((key for key in plan.keys if key <= {field.name for field in plan.fields}), frozenset[str]())
    numbers = [number for number, field in enumerate(plan.fields) if field.name in key]
    excuses = _excuse(differing, changes, numbers, late_records)
    if plan.appends:
        return excuses
    # Rows of an aggregate or a join over results of windows may be others than in all runs.
    left = compare_again(connection, only_over) if exact else Comparison([], [])
    return excuses._replace(differing=left, excused=Comparison([], []) if left.size else differing)


def _excuse(differing: Comparison, changes: Mapping[str, Comparison], key: Sequence[int], late_records: int) -> Excuses:
    """Excuse rows that depend on what is open and late.

    Args:
        differing: the differences.
        changes: which rows are different ones if windows are open, if records are late, and if both is so.
        key: numbers of the columns of which no two rows have the same values; none if there are no such ones.
        late_records: number of records that may be late.
    """
    not_open = pair_close_rows(differing.missing, changes["open"].missing).missing
    late = [row for name in ("late", "both") if name in changes for row in changes[name].missing]
    missing = pair_close_rows(not_open, late).missing
    if key:
        # Without its late records, such a row is another one, which must be there.
        owed = _keys((row for name in ("late", "both") if name in changes for row in changes[name].surplus), key)
        owed -= _keys(differing.surplus, key)
        missing = [row for row in not_open if row in missing or _key_of(row, key) in owed]
    others = [row for change in changes.values() for row in change.surplus]
    surplus = pair_close_rows(others, differing.surplus).surplus
    # Of the records that may be late, some were not.
    affected = [row for change in changes.values() for row in (*change.missing, *change.surplus)]
    surplus = _leave_out_affected(surplus, affected, key, len(differing.missing) - len(missing))
    left = differing._replace(missing=missing, surplus=surplus)
    excused = Comparison(
        pair_close_rows(not_open, missing).missing, pair_close_rows(differing.surplus, surplus).missing
    )
    return Excuses(left, excused, len(differing.missing) - len(not_open), late_records)


def _leave_out_affected(
    surplus: list[Row], affected: Iterable[Row], key: Sequence[int], missing_count: int
) -> list[Row]:
    if not key:
        # Each stands for another one that is missing.
        return surplus[missing_count:]
    keys = _keys(affected, key)
    return [row for row in surplus if _key_of(row, key) not in keys]


def _keys(rows: Iterable[Row], key: Sequence[int]) -> set[str]:
    return {_key_of(row, key) for row in rows}


def _key_of(row: Row, key: Sequence[int]) -> str:
    return repr([row[number] for number in key])
