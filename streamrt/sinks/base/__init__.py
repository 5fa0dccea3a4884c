"""Base classes, batches and errors of sinks."""

from streamrt.connectors import BaseSink, BatchingSink, SinkBackpressureError, SinkBatch, SinkItem
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback

__all__ = [
    "BaseSink",
    "BatchingSink",
    "ClientConnectFailureCallback",
    "ClientConnectSuccessCallback",
    "SinkBackpressureError",
    "SinkBatch",
    "SinkItem",
]
