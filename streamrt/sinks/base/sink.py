"""The base classes of sinks."""

from streamrt.connectors import BaseSink, BatchingSink
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback

__all__ = ["BaseSink", "BatchingSink", "ClientConnectFailureCallback", "ClientConnectSuccessCallback"]
