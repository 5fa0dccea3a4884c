"""Sinks: where values leave Kafka."""

from streamrt.connectors.sinks.base import BaseSink, BatchingSink, DriverSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.csv import CSVSink
from streamrt.connectors.sinks.list import ListSink
from streamrt.connectors.sinks.spark import SparkSink

__all__ = ["BaseSink", "BatchingSink", "CSVSink", "DriverSink", "ListSink", "SinkBatch", "SinkItem", "SparkSink"]
