"""The order of rows, and the arguments of `top`."""

from __future__ import annotations

from typing import Any, get_args

from streamrt.arguments import checked, checked_choice
from streamrt.dataframe.grouping import column_list
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.operators.ranking import Ranking, RankMethod

__all__ = ["make_ranking", "read_order"]


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
    columns, directions = read_order("top", "by", by, descending)
    checked("top(rank=...)", rank, str, "the name of a column", bool)
    return Ranking(n, columns, directions, checked_choice("top(method=...)", method, get_args(RankMethod)), rank)


def read_order(method: str, argument: str, by: Any, descending: Any) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """Return the columns by which rows are ordered, and their directions.

    Args:
        method: name of the method, for errors.
        argument: name of the argument of the columns, for errors.
        by: column or columns.
        descending: whether the highest values come first, for all columns or for each.

    Raises:
        InvalidOperationError: if an argument cannot be used.
    """
    call = f"{method}({argument}=...)"
    if not isinstance(by, str | list | tuple):
        raise ArgumentTypeError(f"{call} takes the name of a column or a list of names, got {type(by).__name__}")
    columns = column_list(call, [by] if isinstance(by, str) else by)
    if isinstance(descending, list | tuple):
        if len(descending) != len(columns):
            raise ArgumentValueError(
                f"{method}(descending=...) has {len(descending)} directions, and {argument}=... {len(columns)} columns: give "
                "one direction for all, or one for each column"
            )
        directions = tuple(descending)
    else:
        directions = (descending,) * len(columns)
    for direction in directions:
        checked(f"{method}(descending=...)", direction, bool, "True or False, or a list of them")
    return columns, directions
