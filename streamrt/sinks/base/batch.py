"""The batch of a batching sink."""

from streamrt.connectors import SinkBatch

__all__ = ["SinkBatch"]
