"""Operators: frozen descriptions of the operations of dataframes."""

from streamrt.operators.apply import Apply
from streamrt.operators.broadcast import Broadcast
from streamrt.operators.calls.apply_async import ApplyAsync
from streamrt.operators.calls.retry import Retry
from streamrt.operators.columns import Assign, Compute, Drop, Fill, Project, Where
from streamrt.operators.concat import Concat
from streamrt.operators.filter import Filter
from streamrt.operators.group_by import ColumnKey, ColumnsKey, Repartition
from streamrt.operators.metadata import SetHeaders, SetTimestamp
from streamrt.operators.partitioning import Rebalance
from streamrt.operators.reduce import Reduce
from streamrt.operators.show import Print, PrintTable
from streamrt.operators.sink import SinkOperator
from streamrt.operators.to_topic import ToTopic
from streamrt.operators.update import Update

__all__ = [
    "Apply",
    "ApplyAsync",
    "Assign",
    "Broadcast",
    "ColumnKey",
    "ColumnsKey",
    "Compute",
    "Concat",
    "Drop",
    "Fill",
    "Filter",
    "Print",
    "PrintTable",
    "Project",
    "Rebalance",
    "Reduce",
    "Repartition",
    "Retry",
    "SetHeaders",
    "SetTimestamp",
    "SinkOperator",
    "ToTopic",
    "Update",
    "Where",
]
