"""Joins of tables by a foreign key: the positions and topics in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamrt.arguments import refuse_async
from streamrt.dataframe.branch import Branch
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.joins.merging import Merge
from streamrt.operators.group_by import ColumnKey, ColumnsKey
from streamrt.relations import (
    ForeignHow,
    ForeignKey,
    MatchForeignKeys,
    ResolveMatches,
    SendMatch,
    Subscribe,
)
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.topics import Topic
from streamrt.topics.key_serializers import find_key_serializer

__all__ = ["KeyOfOther", "exchange_topic", "find_equal_columns", "join_by_foreign_key", "make_foreign_key"]

KeyOfOther = str | list[str] | Callable[[Any], Any]
"""What names a row of another table: a column, several, or a function of a row."""


def join_by_foreign_key(
    left: Branch, right: Branch, on: KeyOfOther, how: ForeignHow, merge: Merge, name: str | None
) -> Branch:
    """Return the position of the joined rows, which have the keys of the left ones.

    Args:
        left: position of the changes of the left table.
        right: position of those of the right table.
        on: what names the right row.
        how: which left rows are joined.
        merge: function of the left and the right row.
        name: part of the names of topics and stores; by default that of the columns.

    Raises:
        ArgumentTypeError: if `on` is neither columns nor a function.
        ArgumentValueError: if a function has no name, or the join was defined before.
        InvalidOperationError: if rows have no key.
    """
    for branch in (left, right):
        branch.require_keys("join(on=...) with a foreign key")
    function, name = make_foreign_key(on, name)
    foreign_key = ForeignKey(function)
    there, back = left.topics[0], right.topics[0]
    subscriptions = exchange_topic(left, f"{name}.subscriptions", back)
    asked = left.exchange(Subscribe(subscriptions, name, back.name, foreign_key), name)
    meeting = asked.meeting((right,))
    store = meeting.own_store("match", "join()", "join(..., name='...')")
    found = asked.merge((right,), MatchForeignKeys(meeting.store(store, ProcessTransaction)))
    matches = exchange_topic(found, f"{name}.matches", there)
    answered = found.exchange(SendMatch(matches, name, there.name), name)
    meeting = left.meeting((answered,))
    store = meeting.own_store(f"join_{name}", "join()", "join(..., name='...')")
    return left.merge((answered,), ResolveMatches(how, merge, foreign_key, meeting.store(store)))


def find_equal_columns(on: KeyOfOther, key_columns: tuple[str, ...]) -> frozenset[str]:
    """Return the columns that both rows of a join have, with the same value: those of the key that `on` names alike.

    Args:
        on: what names the row of the other table.
        key_columns: the columns of its key.

    Example:
        >>> find_equal_columns("customer_id", ("customer_id",)), find_equal_columns(["city", "at"], ("city", "id"))
        (frozenset({'customer_id'}), frozenset({'city'}))
    """
    names = (on,) if isinstance(on, str) else tuple(on) if isinstance(on, list | tuple) else ()
    if len(names) != len(key_columns):
        return frozenset()
    return frozenset(one for one, other in zip(names, key_columns, strict=True) if one == other)


def exchange_topic(branch: Branch, operation: str, like: Topic) -> Topic:
    """Declare a repartition topic that has the keys, and so the partitions, of another topic.

    Args:
        branch: position of the records that go into it.
        operation: what they go there for, part of the name.
        like: the other topic.
    """
    return branch.exact_topic(
        operation,
        key_deserializer=like.key_deserializer,
        key_serializer=find_key_serializer(like),
        like=like.name,
    )


def make_foreign_key(on: KeyOfOther, name: str | None) -> tuple[Callable[[Any], Any], str]:
    """Return the function from a value to the key of a row of the other table, and its name.

    Args:
        on: a column, a list of columns, or a function of the value.
        name: the name; by default that of the columns.

    Raises:
        ArgumentTypeError: if `on` is something else.
        ArgumentValueError: if a function has no name.
    """
    if isinstance(on, str):
        return ColumnKey(on), name or on
    if isinstance(on, list):
        if not on or not all(isinstance(column, str) for column in on):
            raise ArgumentTypeError(f"join(on=...) takes names of columns, got {on!r}")
        return ColumnsKey(tuple(on)), name or ".".join(on)
    if not callable(on):
        raise ArgumentTypeError(
            f"join(on=...) takes a column, a list of columns or a function of a row, got {type(on).__name__}: the other "
            "side of the join with a table is the table's key"
        )
    refuse_async("join(on=...)", on)
    if name is None:
        raise ArgumentValueError(
            "join(on=...) with a function needs a name, which its topics get: join(..., name='...')"
        )
    return on, name
