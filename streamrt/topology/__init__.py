"""The graph of operators: immutable data, and its composition into closures."""

from streamrt.topics import WatermarkStrategy, WhenAllIdle
from streamrt.topology.builder import TopologyBuilder, caller
from streamrt.topology.compose import NodeClosures, compose_stream
from streamrt.topology.graph import TaskStore, Topology, stream_id
from streamrt.topology.inlined import GENERATED_FILE, InlinedCode
from streamrt.topology.metrics import Measured, MetricId, Metrics, merged
from streamrt.topology.node import (
    AsyncCalls,
    ExchangeOperator,
    HeldRecords,
    InMemoryExchange,
    MergeOperator,
    Node,
    Operator,
    OperatorContext,
    OutletOperator,
    PartitionSender,
    RecordHandler,
    SideOutput,
    SourceOperator,
    StateAccess,
    TaskServices,
)
from streamrt.topology.tallies import Tallies, Tally, add_tallies, of_kind
from streamrt.topology.task_access import TaskAccess
from streamrt.topology.task_id import TaskId

__all__ = [
    "GENERATED_FILE",
    "AsyncCalls",
    "ExchangeOperator",
    "HeldRecords",
    "InMemoryExchange",
    "InlinedCode",
    "Measured",
    "MergeOperator",
    "MetricId",
    "Metrics",
    "Node",
    "NodeClosures",
    "Operator",
    "OperatorContext",
    "OutletOperator",
    "PartitionSender",
    "RecordHandler",
    "SideOutput",
    "SourceOperator",
    "StateAccess",
    "Tallies",
    "Tally",
    "TaskAccess",
    "TaskId",
    "TaskServices",
    "TaskStore",
    "Topology",
    "TopologyBuilder",
    "WatermarkStrategy",
    "WhenAllIdle",
    "add_tallies",
    "caller",
    "compose_stream",
    "merged",
    "of_kind",
    "stream_id",
]
