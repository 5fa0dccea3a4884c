"""Deliberate mistakes with tables."""

from collections.abc import Callable, Iterable
from typing import Any

import streamrt.relations.maintain as maintain_module
import streamrt.relations.merge_rules as rules_module
import streamrt.runtime.tasks.stores.changelog_restore as restore_module
from streamrt.records import Headers
from streamrt.relations import Change, Materialize, TableJoin
from streamrt.state.changelog import restore_changes
from streamrt.topology import Node, OperatorContext, RecordHandler

TABLES = "tables"
"""In the names of mutants that are looked for in applications with tables."""

MERGING = "merging"
"""In the names of mutants that are looked for in applications that maintain a table."""

_REAL_MATERIALIZE = Materialize.build
_REAL_JOIN = TableJoin.build_inputs
_REAL_STORE_ROW = maintain_module._store_row
_REAL_EXPIRE = maintain_module._ExpiringRows._expire_row


class _Certain:
    """The services of a task that believes that no record is repeated."""

    repeats_records = False

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def _pass_no_equal_rows(self: Materialize, child: RecordHandler, node: Node, context: Any) -> RecordHandler:
    return _REAL_MATERIALIZE(self, child, node, _Certain(context))


def _remember_rows(self: TableJoin, child: RecordHandler, node: Node, context: OperatorContext) -> Any:
    """Take the former row from memory, as it was passed on last."""
    rows: dict[Any, Any] = {}

    def pass_on(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        former, rows[key] = rows.get(key), value[1]
        child(Change(former, value[1]), key, timestamp, headers)

    return _REAL_JOIN(self, pass_on, node, context)


def _lose_retractions(self: TableJoin, child: RecordHandler, node: Node, context: OperatorContext) -> Any:
    """Pass no deletion on."""

    def pass_on(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        if value[1] is not None:
            child(value, key, timestamp, headers)

    return _REAL_JOIN(self, pass_on, node, context)


def _forget_deletions(self: TableJoin, child: RecordHandler, node: Node, context: OperatorContext) -> Any:
    """Keep the row of one side when it is deleted."""
    left, right = _REAL_JOIN(self, child, node, context)

    def right_rows(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        if value[1] is not None:
            right(value, key, timestamp, headers)

    return left, right_rows


def _let_updates_overtake(self: TableJoin, child: RecordHandler, node: Node, context: OperatorContext) -> Any:
    """Hold an insertion until the next change."""
    held: list[Any] = []

    def pass_on(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        if value[0] is None and not held:
            held.append((value, key, timestamp, headers))
            return
        child(value, key, timestamp, headers)
        while held:
            child(*held.pop())

    return _REAL_JOIN(self, pass_on, node, context)


def _restore_no_tombstones(entries: Iterable[tuple[bytes, bytes | None]], *rest: Any) -> Any:
    return restore_changes((entry for entry in entries if entry[1] is not None), *rest)


def _keep_deleted_rows(state: Any, row: Any, timestamp: int) -> None:
    if row is not None:
        _REAL_STORE_ROW(state, row, timestamp)


def _keep_replaced_values(function: Any, column: Any) -> Any:
    """Let the last value of a column count, and not their sum."""
    return lambda present, given: given


def _expire_in_the_topic_alone(self: Any, state: Any, prefix: bytes, now: int) -> int | None:
    """Delete rows that are too old, and keep them for later requests."""
    undeletable: Any = _Undeletable(state)
    return _REAL_EXPIRE(self, undeletable, prefix, now)


def _set_no_further_timer(self: Any, prefix: bytes, now: int) -> None:
    """Forget a row that was written again since its timer was set."""
    transaction = self._transaction
    self._expire_row(transaction.state_at(prefix, now), prefix, now)


class _Undeletable:
    """The state of a key that cannot be deleted."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def delete(self, name: str) -> None:
        """Delete nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


def _always(one: Any, other: Any) -> bool:
    return True


def _never(one: Any, other: Any) -> bool:
    return False


Patch = tuple[Any, str, Callable[..., Any]]

TABLE_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{prefix}{what}": ("", transactional, ((where, name, mistake),))
    for what, guarantees, where, name, mistake in (
        ("equal rows are never passed on", (False,), Materialize, "build", _pass_no_equal_rows),
        ("former rows are kept in memory", (True,), TableJoin, "build_inputs", _remember_rows),
        ("a retraction is lost", (True, False), TableJoin, "build_inputs", _lose_retractions),
        ("a deletion of one side is forgotten", (True, False), TableJoin, "build_inputs", _forget_deletions),
        ("an update comes before its insertion", (True,), TableJoin, "build_inputs", _let_updates_overtake),
        ("a restore skips tombstones", (True, False), restore_module, "restore_changes", _restore_no_tombstones),
    )
    for transactional in guarantees
    for prefix in (
        f"{TABLES}, {'' if transactional else 'at least once, '}",
        f"resident {TABLES}, {'' if transactional else 'at least once, '}",
    )
}

_Rows = maintain_module._ExpiringRows
_MERGE_MISTAKES: tuple[tuple[str, str, tuple[bool, ...], Any, str, Callable[..., Any]], ...] = (
    ("unchanged rows are written", "merged", (True,), maintain_module, "rows_differ", _always),
    ("a deleted row comes back", "merged", (True, False), maintain_module, "_store_row", _keep_deleted_rows),
    ("the version is ignored", "newest", (True,), rules_module, "is_higher", _never),
    ("sequences are ignored", "grouped", (True, False), rules_module, "is_higher", _never),
    ("values are not added", "summed", (True,), rules_module, "make_aggregate", _keep_replaced_values),
    ("expired rows are merged", "expiring", (True,), _Rows, "_expire_row", _expire_in_the_topic_alone),
    ("rows have one timer", "expiring", (True,), _Rows, "_handle_timer", _set_no_further_timer),
)
MERGED_BY = {what: table for what, table, *_ in _MERGE_MISTAKES}
"""The maintained table by which a mistake is found."""

MERGE_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{prefix}{MERGING}, {'' if transactional else 'at least once, '}{what}": (
        "",
        transactional,
        ((where, name, mistake),),
    )
    for what, _, guarantees, where, name, mistake in _MERGE_MISTAKES
    for transactional in guarantees
    for prefix in ("", "resident ")
}
