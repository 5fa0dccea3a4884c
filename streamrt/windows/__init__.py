"""Windows: aggregates of a key's records, over intervals of event time or numbers of records."""

from streamrt.windows.aggregators import (
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
