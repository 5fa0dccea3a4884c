"""Aggregations of windows, under the path of Quix Streams: the names of `streamrt.windows`."""

from streamrt.windows import (
    Aggregator,
    Collect,
    Collector,
    Count,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Reduce,
    Sum,
)

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
