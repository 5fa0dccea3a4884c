"""The first rows of each group. `top` is a method of `StreamingDataFrame` and of groups of a table."""

from __future__ import annotations

from typing import TypeVar

from streamrt.dataframe.branch import Frame
from streamrt.dataframe.grouped_table import add_top
from streamrt.dataframe.streaming_table import StreamingTable

__all__ = ["top"]

F = TypeVar("F", bound=Frame)


def top(
    self: F,
    n: int,
    by: str | list[str],
    *,
    descending: bool = True,
    rank: str = "rank",
    name: str | None = None,
) -> StreamingTable[F]:
    """Keep the first n records of each key in the order of columns: a table with a row for each key and rank.

    Call it after `group_by`. A row is a record with its rank, from 1, as a further column; its key is that of the group and
    the rank. A record that gets a rank moves those after it, and each of these rows changes. Records with equal values keep
    the order of their arrival. None comes last.

    The state holds n records for each group, for ever. Records without a key are skipped.

    Args:
        n: number of rows of each group.
        by: the column by which records are ordered, or a list of columns, the first one first.
        descending: whether the highest values come first.
        rank: name of the column of the rank.
        name: part of the name of the store; required for a second `top` of the same frame.

    Returns:
        The table.

    Raises:
        InvalidOperationError: if an argument cannot be used, this frame has another `top` with the same store, or the records
            of a key are in several partitions.

    Example:
        ```python
        bids.group_by("auction").top(10, by="price").to_table("market.highest_bids")
        ```
    """
    columns = self._branch.key_columns or ()
    branch = add_top(self._branch, n, by, descending, rank, name, len(columns), retracts=False)
    return StreamingTable(self, branch, (*columns, rank) if columns else ())
