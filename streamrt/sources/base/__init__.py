"""Base classes and errors of sources."""

from streamrt.connectors import BaseSource, Source, StatefulSource
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.errors import SourceError as SourceException

__all__ = [
    "BaseSource",
    "ClientConnectFailureCallback",
    "ClientConnectSuccessCallback",
    "Source",
    "SourceException",
    "StatefulSource",
]
