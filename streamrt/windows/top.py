"""`top` of a window: its first rows in an order."""

from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from streamrt.operators.ranking import Ranking
from streamrt.windows.aggregator import BuiltIn
from streamrt.windows.fold import Fold, Packing
from streamrt.windows.functions import ProcessWindowFunction
from streamrt.windows.pane_contexts import WindowContext

__all__ = ["RankedRows", "TopValues"]


class TopValues(BuiltIn):
    """Keeps the values of a window that have a rank.

    The state has the bytes of the order of each value, in hexadecimal, and its cell, in order; of equal ones, the value that
    arrived first is first. The result is a list of rank, number in the rank, and value.

    Args:
        ranking: which rows are the first ones.

    Example:
        >>> top = TopValues(Ranking(1, ("price",), (True,), "rank", "rank"))
        >>> state = top.initialize()
        >>> for price in (5, 7, 7):
        ...     state = top.agg(state, {"price": price}, 0)
        >>> top.result(state)
        [(1, 1, {'price': 7}), (1, 2, {'price': 7})]
    """

    def __init__(self, ranking: Ranking) -> None:
        super().__init__()
        self.ranking = ranking

    @property
    def state_suffix(self) -> str:  # noqa: D102
        return f"{super().state_suffix}/{self.ranking.describe()}"

    def _make_fold(self) -> Fold:
        ranking, order_of = self.ranking, self.ranking.make_order()

        def keep_ranked(state: list[Any]) -> list[Any]:
            return [item for *_, item in ranking.rank_rows((item[0], item) for item in state)]

        def step(state: Any, value: Any, timestamp: int, packing: Packing) -> Any:
            if value is None:
                return state
            ranking.check_row(value)
            data = order_of(value)
            if state:
                ranking.check_order(value, data, bytes.fromhex(state[0][0]))
            added = [data.hex(), None]
            place = bisect_right(state, added[0], key=itemgetter(0))
            kept = keep_ranked([*state[:place], added, *state[place:]])
            if len(kept) <= place:
                return state
            if state:
                ranking.check_types(value, packing.unpack(state[0][1]))
            added[1] = packing.pack(value)
            return kept

        def result(state: Any, packing: Packing) -> Any:
            rows = ranking.rank_rows((order, cell) for order, cell in state)
            return [(rank, tie, packing.unpack(cell)) for rank, tie, cell in rows]

        def merge(a: Any, b: Any, packing: Packing) -> Any:
            return keep_ranked(sorted([*a, *b], key=itemgetter(0)))

        return Fold(lambda packing: [], step, result, merge)


class RankedRows(ProcessWindowFunction):
    """Passes on the values that `TopValues` has kept, with their ranks, and the bounds of the window.

    Results of windows have bounds already, which they keep.

    Args:
        ranking: which rows are the first ones.
    """

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking

    def process(self, key: Any, ctx: WindowContext, elements: list[Any]) -> Iterator[dict[str, Any]]:
        """Yield the rows in the order of their ranks."""
        bounds = {"start": ctx.window.start, "end": ctx.window.end}
        for rank, tie, row in elements[0]:
            yield {**bounds, **self._ranking.add_rank(row, rank, tie)}
