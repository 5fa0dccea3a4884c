"""Joins of streams with tables: the exchange that brings records to the rows that they name."""

from __future__ import annotations

from typing import Any

from streamrt.arguments import checked_choice
from streamrt.dataframe.aggregating import key_columns as find_key_columns
from streamrt.dataframe.branch import Branch
from streamrt.dataframe.foreign_keys import exchange_topic, find_equal_columns, make_foreign_key
from streamrt.errors import ArgumentValueError
from streamrt.joins.merging import OnMerge, merge_of
from streamrt.operators.functions import require_name
from streamrt.relations import ForeignKey, SendByKey, StreamTableJoin

__all__ = ["join_table"]


def join_table(
    left: Branch, right: Branch, on: Any, how: Any, on_merge: OnMerge, name: str | None, key_columns: tuple[str, ...]
) -> Branch:
    """Return the position of the records of a stream, merged with the present rows of a table.

    Args:
        left: position of the stream.
        right: position of the changes of the table.
        on: what names the row: columns or a function of the value; None for the keys of the records.
        how: "inner" or "left".
        on_merge: how to merge a value and a row.
        name: part of the names of the store and of the internal topic.
        key_columns: the columns of the key of the table.

    Raises:
        InvalidOperationError: if an argument cannot be used, or the join was defined before.
    """
    checked_choice("join(how=...) of a stream with a table", how, ("inner", "left"))
    named = list(find_key_columns(left)) if on is None else on
    merge = merge_of("join", on_merge, find_equal_columns(named, key_columns))
    require_name("join", name)
    if right.builder is not left.builder:
        raise ArgumentValueError("join() got a table of another application")
    right.require_keys("join() of a stream with a table")
    if on is not None:
        function, name = make_foreign_key(on, name)
        topic = exchange_topic(left, f"{name}.lookup", right.topics[0])
        left = left.exchange(SendByKey(topic, name, right.topics[0].name, ForeignKey(function)), name)
    store = left.meeting((right,)).own_store(
        "row" if name is None else f"row_{name}", "join()", "join(..., name='...')"
    )
    rows = right.of_streams()
    return left.merge((rows,), StreamTableJoin(how, merge, left.meeting((rows,)).store(store)))
