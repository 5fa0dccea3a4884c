"""The base classes of sources."""

from streamrt.connectors import BaseSource, Source, StatefulSource
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback

__all__ = ["BaseSource", "ClientConnectFailureCallback", "ClientConnectSuccessCallback", "Source", "StatefulSource"]
