"""Aggregates of the rows of frames."""

from collections.abc import Callable
from typing import Any

from streamrt.common.copies import deep_copy
from streamrt.errors import InvalidOperationError
from streamrt.windows.aggregator import PLAIN, Aggregator, Collector, pick_of
from streamrt.windows.aggregators import fold_of, is_built_in
from streamrt.windows.arrivals import Earliest, Latest
from streamrt.windows.fold import Fold
from streamrt.windows.frames import Frame, OrderedRows
from streamrt.windows.inputs import extractor_of
from streamrt.windows.over_functions import OverFunction, Reach
from streamrt.windows.retraction import retracting_fold_of

__all__ = ["FrameAggregate", "FrameCollection", "make_over_function"]


class FrameAggregate(OverFunction):
    """An aggregate of the rows of the frame, in their order.

    From a frame to the next one, rows are added to a state, and taken back from it if that is exact; otherwise a frame that
    begins later is aggregated from its first row on.

    Args:
        name: name of the result, for errors.
        aggregator: the aggregator.
        timed: whether rows have times, as those of streams.

    Raises:
        InvalidOperationError: if it depends on times, which rows of a table do not have.

    Example:
        >>> from streamrt.windows import Sum
        >>> rows = OrderedRows.of([1, 2, 3], [{"a": 1}, {"a": 2}, {"a": 4}])
        >>> FrameAggregate("total", Sum("a")).compute(rows, Frame("rows", -1, 0))
        [1, 3, 6]
    """

    def __init__(self, name: str, aggregator: Aggregator, *, timed: bool = False) -> None:
        if not timed and isinstance(aggregator, Earliest | Latest):
            raise InvalidOperationError(
                f"agg({name}={aggregator!r}): rows of a table have no times; FirstValue and LastValue choose by the order"
            )
        self.name = name
        self.aggregator = aggregator

    def compute(self, ordered: OrderedRows, frame: Frame) -> list[Any]:  # noqa: D102
        fold, extract = _make_fold(self.name, self.aggregator)
        inputs = list(ordered.rows if extract is None else map(extract, ordered.rows))
        times = ordered.times or [0] * len(inputs)
        results: list[Any] = []
        state, first, end = fold.initial(PLAIN), 0, 0
        last: tuple[int, int] | None = None
        for low, high in frame.bounds(ordered):
            high = max(low, high)
            if (low, high) == last:
                results.append(results[-1])
                continue
            last = low, high
            if low >= end or (low > first and fold.retract is None):
                state, first, end = fold.initial(PLAIN), low, low
            for value in inputs[first:low]:
                state = fold.retract(state, value, 0, PLAIN)  # type: ignore[misc]  # checked above
            for value, time in zip(inputs[end:high], times[end:high], strict=True):
                state = fold.step(state, value, time, PLAIN)
            first, end = low, high
            results.append(fold.result(state, PLAIN))
        return results

    def reach(self, frame: Frame) -> Reach:  # noqa: D102
        return frame.reach

    def growing_fold(self) -> tuple[Fold, Callable[[Any], Any] | None]:
        """Return the fold of a frame to which rows are only added, and the function that makes its inputs."""
        fold, pick = fold_of(self.aggregator)
        return _copy_arguments(fold, self.aggregator), extractor_of(pick)

    def __repr__(self) -> str:
        return repr(self.aggregator)


class FrameCollection(OverFunction):
    """What a collector makes of the rows of the frame, in their order.

    Args:
        collector: the collector.

    Example:
        >>> from streamrt.windows import Collect
        >>> rows = OrderedRows.of([1, 2, 3], [{"a": 1}, {"a": 2}, {"a": 4}])
        >>> FrameCollection(Collect("a")).compute(rows, Frame("rows", -1, 0))
        [[1], [1, 2], [2, 4]]
    """

    def __init__(self, collector: Collector) -> None:
        self.collector = collector

    def compute(self, ordered: OrderedRows, frame: Frame) -> list[Any]:  # noqa: D102
        pick = pick_of(self.collector, boxed=True)
        extract, finish = extractor_of(pick), self.collector.result
        items = list(ordered.rows if extract is None else map(extract, ordered.rows))
        if not pick.boxed:
            return [finish(items[first:end]) for first, end in frame.bounds(ordered)]
        return [
            finish([item[0] for item in items[first:end] if item is not None]) for first, end in frame.bounds(ordered)
        ]

    def reach(self, frame: Frame) -> Reach:  # noqa: D102
        return frame.reach

    def __repr__(self) -> str:
        return repr(self.collector)


def make_over_function(name: str, item: Any, *, timed: bool = False) -> OverFunction | None:
    """Return the function that an argument of `agg` stands for; None if it is none.

    Args:
        name: name of the result, for errors.
        item: an aggregator, a collector, or a function.
        timed: whether rows have times, as those of streams.

    Raises:
        InvalidOperationError: if it depends on times.
    """
    if isinstance(item, Aggregator):
        return FrameAggregate(name, item, timed=timed)
    return FrameCollection(item) if isinstance(item, Collector) else item if isinstance(item, OverFunction) else None


def _make_fold(name: str, aggregator: Aggregator) -> tuple[Fold, Callable[[Any], Any] | None]:
    """Return a fold that takes values back if it needs no store for that, and the function that makes its inputs."""
    try:
        fold, pick = retracting_fold_of(name, aggregator)
    except InvalidOperationError:
        fold, pick = fold_of(aggregator)
    if fold.release is not None:
        fold, pick = fold_of(aggregator)
        fold = fold._replace(retract=None)
    return _copy_arguments(fold, aggregator), extractor_of(pick)


def _copy_arguments(fold: Fold, aggregator: Aggregator) -> Fold:
    """Return a fold of users' functions, which may change their arguments, and return their state."""
    if is_built_in(aggregator):
        return fold
    step, result = fold.step, fold.result
    return fold._replace(
        step=lambda state, value, timestamp, packing: step(state, deep_copy(value), timestamp, packing),
        result=lambda state, packing: deep_copy(result(state, packing)),
    )
