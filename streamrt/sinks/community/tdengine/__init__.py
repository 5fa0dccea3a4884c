"""A sink for TDengine."""

from streamrt.connectors import TDengineSink

__all__ = ["TDengineSink"]
