"""Tables as bags of rows: unions, differences, and keys for rows that have none."""

from __future__ import annotations

from collections.abc import Sequence

from streamrt.dataframe.branch import Branch
from streamrt.dataframe.row_joins import merge_rows, send_rows, send_sides
from streamrt.relations import CombineRows, DistinctRows, NumberRows, RowDigest, RowSets, UnionRows
from streamrt.state.transactions.timed import TimedTransaction

__all__ = ["combine_rows", "drop_equal_rows", "number_rows", "unite_rows"]


def drop_equal_rows(branch: Branch, name: str | None) -> Branch:
    """Return the position of one of equal rows.

    Args:
        branch: position of the changes of a table.
        name: part of the names of topic and store.
    """
    grouped = send_rows(branch, RowDigest(), name or "distinct")
    store = grouped.own_store("distinct", "distinct()", "distinct(name='...')")
    return grouped.add(DistinctRows(grouped.store(store, TimedTransaction))).of_bags()


def number_rows(branch: Branch, column: str, name: str | None) -> Branch:
    """Return the position of rows whose key is a column that tells equal rows apart.

    Args:
        branch: position of the changes of a table.
        column: the column.
        name: part of the names of topic and store; by default that of the column.
    """
    grouped = send_rows(branch, RowDigest(exact=True), name or column)
    store = grouped.own_store("numbered", "numbered()", "numbered(..., name='...')")
    return grouped.add(NumberRows(column, grouped.store(store, TimedTransaction))).of_tables().rekeyed("numbered")


def unite_rows(branch: Branch, others: Sequence[Branch], name: str | None) -> Branch:
    """Return the position of the rows of several tables.

    The rows of the others are sent to the partitions of the first one.

    Args:
        branch: position of the changes of the first table.
        others: positions of those of the others.
        name: part of the names of topics.
    """
    name, like = name or "union", branch.topics[0].name
    sent = [send_rows(other, RowDigest(exact=True), f"{name}.{number}", like) for number, other in enumerate(others, 2)]
    return merge_rows(branch, sent, lambda meeting: UnionRows())


def combine_rows(left: Branch, right: Branch, sets: RowSets, name: str | None) -> Branch:
    """Return the position of the rows that two tables have in common, or that one has more of.

    Args:
        left: position of the changes of the left table.
        right: position of those of the right one.
        sets: which rows.
        name: part of the names of topics and store; by default that of the operation.
    """
    method = sets.split()[0]
    name = name or sets.replace(" ", "-")
    left, right = send_sides((left, right), (RowDigest(), RowDigest()), name)

    def make(meeting: Branch) -> CombineRows:
        store = meeting.own_store(name, f"{method}()", f"{method}(..., name='...')")
        return CombineRows(sets, meeting.store(store, TimedTransaction))

    return merge_rows(left, [right], make)
