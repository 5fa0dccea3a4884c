"""Sinks: what `streamrt.connectors` has of them."""

from streamrt.connectors import (
    BaseSink,
    BatchingSink,
    CSVSink,
    DriverSink,
    ListSink,
    SinkBackpressureError,
    SinkBatch,
    SinkItem,
    SparkSink,
)

__all__ = [
    "BaseSink",
    "BatchingSink",
    "CSVSink",
    "DriverSink",
    "ListSink",
    "SinkBackpressureError",
    "SinkBatch",
    "SinkItem",
    "SparkSink",
]
