"""Where a node of a statement stands in its text."""

from sqlglot import exp

__all__ = ["position_of"]


def position_of(node: exp.Expr | None) -> tuple[int, int]:
    r"""Return line and column, from 1, of the first word in a node; (0, 0) if none is known.

    If no word in it has a place, that of the nearest node around it counts.

    Args:
        node: the node; None for none.

    Example:
        >>> import sqlglot
        >>> position_of(sqlglot.parse_one("SELECT a,\n  b + 1", read="spark").expressions[1])
        (2, 3)
    """
    while node is not None:
        starts = [
            (inner.meta["start"], inner.meta["line"], inner.meta["col"] - (inner.meta["end"] - inner.meta["start"]))
            for inner in node.walk()
            if "start" in inner.meta
        ]
        if starts:
            _, line, column = min(starts)
            return line, max(column, 1)
        node = node.parent
    return 0, 0
