"""The sinks of `streamrt.connectors`."""

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
