"""What sinks are made of."""

from streamrt.connectors import BaseSink, BatchingSink, SinkBackpressureError, SinkBatch, SinkItem

__all__ = ["BaseSink", "BatchingSink", "SinkBackpressureError", "SinkBatch", "SinkItem"]
