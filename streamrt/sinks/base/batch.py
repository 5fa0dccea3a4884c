"""What a batching sink gathers."""

from streamrt.connectors import SinkBatch

__all__ = ["SinkBatch"]
