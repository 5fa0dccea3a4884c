"""Joins of tables by any columns: the positions and topics in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from streamrt.arguments import refuse_async
from streamrt.dataframe.branch import Branch
from streamrt.dataframe.grouped_table import regroup
from streamrt.dataframe.grouping import column_list
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.joins.merging import OnMerge, merge_of
from streamrt.operators.group_by import ColumnKey
from streamrt.relations import (
    Condition,
    Consolidate,
    ExactDeserializer,
    ExactKey,
    ExactSerializer,
    JoinHow,
    JoinRows,
    KeyNulls,
    Regroup,
)
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics.internal import digest_names
from streamrt.topology import MergeOperator

__all__ = ["RowPart", "RowParts", "give_key", "join_rows", "merge_rows", "send_rows", "send_sides"]

RowPart = str | Callable[[Any], Any]
"""A value of a row: a column, or a function of the row."""

RowParts = RowPart | Sequence[RowPart]
"""What the rows of one side must have equal: one value, or several."""

_CALL = "join(on=...)"


def join_rows(
    left: Branch,
    right: Branch,
    on: tuple[RowParts, RowParts],
    how: JoinHow,
    on_merge: OnMerge,
    name: str | None,
    condition: Condition | None,
    *,
    null_safe: bool,
) -> Branch:
    """Return the position of the rows of a join by columns, which have no key.

    Args:
        left: position of the changes of the left table.
        right: position of those of the right table.
        on: what must be equal in the left and in the right row.
        how: which rows there are.
        on_merge: how two rows are merged.
        name: part of the names of topics and stores; by default that of the left columns.
        condition: function of the left and the right row of a pair.
        null_safe: whether null equals null.

    Raises:
        ArgumentTypeError: if `on` names something else than columns and functions, or the condition is not a function.
        ArgumentValueError: if the sides have different numbers of values, or functions and no name.
        InvalidOperationError: if the join was defined before.
    """
    if len(on) != 2:
        raise ArgumentValueError(
            f"{_CALL} takes a tuple only as a pair, of the columns of the left table and those of the right one, got {on!r}; "
            "give several columns of a foreign key as a list"
        )
    parts = _parse_side(on[0]), _parse_side(on[1])
    if len(parts[0]) != len(parts[1]):
        raise ArgumentValueError(
            f"{_CALL} got {len(parts[0])} values for the left table and {len(parts[1])} for the right one: give as many"
        )
    if condition is not None:
        if not callable(condition):
            raise ArgumentTypeError(
                f"join(condition=...) takes a function of the left and the right row, got {type(condition).__name__}"
            )
        refuse_async("join(condition=...)", condition)
    equal = frozenset(
        one.column
        for one, other in zip(*parts, strict=True)
        if isinstance(one, ColumnKey) and isinstance(other, ColumnKey) and one == other
    )
    merge = merge_of("join", on_merge, equal)
    if name is None:
        name = _name_of(parts[0])
    # What matches nothing is sent only if it is in the result by itself.
    kept = {"left": "left", "anti": "left", "right": "right", "outer": "both"}.get(how)
    nulls: list[KeyNulls] = [
        "equal" if null_safe else "apart" if kept in (side, "both") else "skip" for side in ("left", "right")
    ]
    keys = ExactKey(parts[0], nulls[0]), ExactKey(parts[1], nulls[1])
    left, right = send_sides((left, right), keys, name)
    described = keys[0].describe(), keys[1].describe()

    def make(meeting: Branch) -> JoinRows:
        store = meeting.own_store(f"join_{name}", "join()", "join(..., name='...')")
        spec = meeting.store(store, TimedTransaction)
        return JoinRows(how, merge, spec, described, condition, nulls_equal=null_safe)

    return merge_rows(left, [right], make)


def merge_rows(branch: Branch, others: Sequence[Branch], make: Callable[[Branch], MergeOperator]) -> Branch:
    """Add an operator whose inputs are changes of rows without keys, and whose results are such.

    Args:
        branch: position of the first input.
        others: positions of the others.
        make: returns the operator, given the position at which it is.
    """
    meeting = branch.meeting(others)
    # Such operators may follow each other, so names of groupings must not grow.
    groups = (digest_names(".".join(meeting.groups)),)
    return branch.merge(others, make(replace(meeting, groups=groups)), groups).of_bags()


def send_sides(
    sides: tuple[Branch, Branch], keys: tuple[Callable[[Any], Any], Callable[[Any], Any]], name: str
) -> tuple[Branch, Branch]:
    """Bring the changes of rows of two tables with equal keys together, and return the positions below.

    The topics in between have as many partitions as the left table, or as the right one, if it is known to have more.

    Args:
        sides: positions of the changes.
        keys: make the keys of the rows.
        name: part of the names of the exchanges.
    """
    left, right = (side.topic_manager.declared_partitions(side.stream_id) or 0 for side in sides)
    names = f"{name}.left", f"{name}.right"
    first = int(right > left > 0)
    one = send_rows(sides[first], keys[first], names[first])
    other = send_rows(sides[1 - first], keys[1 - first], names[1 - first], one.topics[0].name)
    return (other, one) if first else (one, other)


def send_rows(branch: Branch, key: Callable[[Any], Any], name: str, like: str | None = None) -> Branch:
    """Bring the changes of rows with equal keys together, and return the position below.

    Args:
        branch: position of the changes.
        key: makes the key of a row.
        name: name of the exchange.
        like: name of a topic that has as many partitions as the one in between; None for that of the input.
    """
    topic = branch.exact_topic(
        name, key_deserializer=ExactDeserializer(), key_serializer=ExactSerializer(), like=like, short=True
    )
    return branch.exchange(Regroup(topic, key, name, like), name)


def give_key(branch: Branch, columns: tuple[str, ...], name: str | None) -> Branch:
    """Bring the rows of a key together, and return the position below, which has one row for each key.

    Args:
        branch: position of the changes.
        columns: the columns of the key.
        name: part of the names of topic and store; by default that of the columns.
    """
    key = columns[0] if len(columns) == 1 else columns
    grouped, _ = regroup(branch, key, name or "-".join(columns), "group")
    store = grouped.own_store("keyed", "keyed_by()", "keyed_by(..., name='...')")
    return grouped.add(Consolidate(grouped.store(store, TimedTransaction), columns)).of_tables()


def _parse_side(parts: Any) -> tuple[Callable[[Any], Any], ...]:
    several = parts if isinstance(parts, list | tuple) else [parts]
    columns = [part for part in several if not callable(part)]
    if columns:
        column_list(_CALL, columns)
    for part in several:
        if callable(part):
            refuse_async(_CALL, part)
    return tuple(ColumnKey(part) if isinstance(part, str) else part for part in several)


def _name_of(parts: tuple[Callable[[Any], Any], ...]) -> str:
    """Return the name of a join by columns."""
    columns = [part.column for part in parts if isinstance(part, ColumnKey)]
    if len(columns) < len(parts) or not columns:
        raise ArgumentValueError(
            f"{_CALL} with functions, or without columns, needs a name, which its topics get: join(..., name='...')"
        )
    return "-".join(columns)
