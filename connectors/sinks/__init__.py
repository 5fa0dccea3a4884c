"""Sinks: where values leave Kafka."""

from streamrt.connectors.sinks.base import BaseSink, BatchingSink, DriverSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.csv import CSVSink
from streamrt.connectors.sinks.list import ListSink
from streamrt.connectors.sinks.spark import SparkSink
from streamrt.connectors.sinks.transactional import PositionChange, SinkCommit, SinkPosition, TransactionalSink

__all__ = [
    "BaseSink",
    "BatchingSink",
    "CSVSink",
    "DriverSink",
    "ListSink",
    "PositionChange",
    "SinkBatch",
    "SinkCommit",
    "SinkItem",
    "SinkPosition",
    "SparkSink",
    "TransactionalSink",
]
