"""The arguments of `top`."""

from __future__ import annotations

from typing import Any, get_args

from streamrt.arguments import checked, checked_choice
from streamrt.dataframe.grouping import column_list
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.operators.ranking import Ranking, RankMethod

__all__ = ["make_ranking"]


def make_ranking(n: Any, by: Any, descending: Any, method: Any, rank: Any) -> Ranking:
    """Return which rows are the first ones.

    Args:
        n: the highest rank.
        by: column or columns.
        descending: whether the highest values come first, for all columns or for each.
        method: how rows are numbered.
        rank: name of the column of the rank.

    Raises:
        InvalidOperationError: if an argument cannot be used.
    """
    checked("top(n)", n, int, "a number of rows, at least 1", lambda count: count >= 1)
    if not isinstance(by, str | list | tuple):
        raise ArgumentTypeError(f"top(by=...) takes the name of a column or a list of names, got {type(by).__name__}")
    columns = column_list("top(by=...)", [by] if isinstance(by, str) else by)
    if isinstance(descending, list | tuple):
        if len(descending) != len(columns):
            raise ArgumentValueError(
                f"top(descending=...) has {len(descending)} directions, and by=... {len(columns)} columns: give one "
                "direction for all, or one for each column"
            )
        directions = tuple(descending)
    else:
        directions = (descending,) * len(columns)
    for direction in directions:
        checked("top(descending=...)", direction, bool, "True or False, or a list of them")
    checked("top(rank=...)", rank, str, "the name of a column", bool)
    return Ranking(n, columns, directions, checked_choice("top(method=...)", method, get_args(RankMethod)), rank)
