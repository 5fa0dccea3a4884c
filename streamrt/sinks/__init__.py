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
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback

__all__ = [
    "BaseSink",
    "BatchingSink",
    "CSVSink",
    "ClientConnectFailureCallback",
    "ClientConnectSuccessCallback",
    "DriverSink",
    "ListSink",
    "SinkBackpressureError",
    "SinkBatch",
    "SinkItem",
    "SparkSink",
]
