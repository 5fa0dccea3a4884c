"""The first rows of each group. `top` is a method of `StreamingDataFrame` and of groups of a table."""

from __future__ import annotations

from typing import TypeVar

from streamrt.dataframe.branch import Frame
from streamrt.dataframe.grouped_table import add_top
from streamrt.dataframe.ranking import make_ranking
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.operators.ranking import RankMethod

__all__ = ["top"]

F = TypeVar("F", bound=Frame)


def top(
    self: F,
    n: int,
    by: str | list[str],
    *,
    descending: bool | list[bool] = True,
    method: RankMethod = "row_number",
    rank: str = "rank",
    name: str | None = None,
) -> StreamingTable[F]:
    """Keep the first n records of each key in the order of columns: a table with a row for each key and rank.

    Call it after `group_by`. A row is a record with its rank, from 1, as a further column; its key is that of the group and
    the rank. A record that gets a rank moves those after it, and each of these rows changes. None comes last.

    The state holds n records for each group, and those with equal values, for ever; `top` of a window forgets them. Records
    without a key are skipped.

    Args:
        n: number of rows of each group, or highest rank.
        by: the column by which records are ordered, or a list of columns, the first one first.
        descending: whether the highest values come first; for several columns, one for all or a list.
        method: how records with equal values are ranked, as SQL's functions of these names do. "row_number": in the order of
            their arrival, so that there are n rows. "rank": all of them get the same rank, and the next record that of its
            place, such as 1, 1, 3. "dense_rank": without gaps, such as 1, 1, 2. With both, there is a row for each record
            that has a rank of at most n. Their number in the rank, from 1, is a further column, `rank_tie`, and belongs to
            the key.
        rank: name of the column of the rank; `_tie` is added to it.
        name: part of the name of the store; required for a second `top` of the same frame.

    Returns:
        The table.

    Raises:
        InvalidOperationError: if an argument cannot be used, this frame has another `top` with the same store, or the records
            of a key are in several partitions.

    Example:
        ```python
        bids.group_by("auction").top(10, by=["price", "time"], descending=[True, False]).to_table("market.highest_bids")
        ```
    """
    columns, ranking = self._branch.key_columns or (), make_ranking(n, by, descending, method, rank)
    branch = add_top(self._branch, ranking, name, len(columns), retracts=False)
    return StreamingTable(self, branch, (*columns, *ranking.rank_columns) if columns else ())
