"""Windows: aggregates of a key's records, over intervals of time or numbers of records."""

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
from streamrt.windows.assigners import (
    EventTimeSessions,
    GlobalWindows,
    MergingWindowAssigner,
    ProcessingTimeSessions,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from streamrt.windows.choices import AnyValue, BoolAnd, BoolOr, MaxBy, MinBy
from streamrt.windows.distinct import CollectSet, CountDistinct
from streamrt.windows.evictors import (
    CountEvictor,
    DeltaEvictor,
    Evictor,
    TimeEvictor,
)
from streamrt.windows.functions import (
    ProcessWindowFunction,
)
from streamrt.windows.lists import CollectList
from streamrt.windows.pane_contexts import (
    EvictorContext,
    MergeContext,
    TriggerContext,
    WindowContext,
)
from streamrt.windows.sketches import ApproxCountDistinct
from streamrt.windows.statistics import StandardDeviation, Variance
from streamrt.windows.totals import Total
from streamrt.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from streamrt.windows.window import (
    Window,
)

__all__ = [
    "Aggregator",
    "AnyValue",
    "ApproxCountDistinct",
    "BoolAnd",
    "BoolOr",
    "Collect",
    "CollectList",
    "CollectSet",
    "Collector",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "Count",
    "CountDistinct",
    "CountEvictor",
    "CountTrigger",
    "DeltaEvictor",
    "DeltaTrigger",
    "Earliest",
    "EventTimeSessions",
    "EventTimeTrigger",
    "Evictor",
    "EvictorContext",
    "First",
    "GlobalWindows",
    "Last",
    "Latest",
    "Max",
    "MaxBy",
    "Mean",
    "MergeContext",
    "MergingWindowAssigner",
    "Min",
    "MinBy",
    "NeverTrigger",
    "ProcessWindowFunction",
    "ProcessingTimeSessions",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "Reduce",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "StandardDeviation",
    "Sum",
    "TimeEvictor",
    "Total",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Variance",
    "Window",
    "WindowAssigner",
    "WindowContext",
]
