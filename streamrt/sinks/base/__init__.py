"""Base classes, batches and errors of sinks."""

from streamrt.connectors import BaseSink, BatchingSink, SinkBackpressureError, SinkBatch, SinkItem

__all__ = ["BaseSink", "BatchingSink", "SinkBackpressureError", "SinkBatch", "SinkItem"]
