"""Aggregators by the names that users import, and their folds."""

from typing import Final

from streamrt.windows.aggregator import Aggregator, BuiltIn, Collector, pick_of
from streamrt.windows.arrivals import Arrived, Earliest, First, Last, Latest
from streamrt.windows.extremes import Max, Min
from streamrt.windows.fold import Fold, unbox
from streamrt.windows.inputs import Pick
from streamrt.windows.numeric import Count, Mean, Sum
from streamrt.windows.reductions import Collect, Reduce

__all__ = [
    "Aggregator",
    "Collect",
    "Collector",
    "Count",
    "Earliest",
    "First",
    "Last",
    "Latest",
    "Max",
    "Mean",
    "Min",
    "Reduce",
    "Sum",
]

_METHODS: Final = ("initialize", "agg", "result", "merge")


def is_built_in(aggregator: Aggregator) -> bool:
    """Return whether an aggregator's methods are those of a built-in class, so that its fold may be used."""
    kind = type(aggregator)
    return issubclass(kind, BuiltIn) and _has_methods_of(kind, BuiltIn)


def fold_of(aggregator: Aggregator, *, by_arrival: bool = False) -> tuple[Fold, Pick]:
    """Return the fold of an aggregator, and what it reads of values.

    Args:
        aggregator: the aggregator.
        by_arrival: whether states of different windows merge, so that the order of arrival must be in them.
    """
    if is_built_in(aggregator):
        if by_arrival and isinstance(aggregator, Arrived):
            return aggregator._fold_by_arrival(), pick_of(aggregator)
        return aggregator._make_fold(), pick_of(aggregator)
    if isinstance(aggregator, Reduce) and _has_methods_of(type(aggregator), Reduce):
        fold, pick = aggregator._make_fold(), pick_of(aggregator, boxed=True)
    else:
        # A user's class, possibly derived from a built-in one: use the methods that it defines, which take whole values.
        fold = Aggregator._make_fold(aggregator)
        pick = Pick(where=aggregator.where, boxed=aggregator.where is not None)
    return (unbox(fold) if pick.boxed else fold), pick


def _has_methods_of(kind: type, known: type) -> bool:
    return all(getattr(kind, name) is getattr(known, name) for name in _METHODS)
