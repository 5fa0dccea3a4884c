"""The sources of `streamrt.connectors`."""

from streamrt.connectors import (
    BaseSource,
    CSVSource,
    KafkaReplicatorSource,
    PandasDataFrameSource,
    Source,
    StatefulSource,
)
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.errors import SourceError as SourceException

__all__ = [
    "BaseSource",
    "CSVSource",
    "ClientConnectFailureCallback",
    "ClientConnectSuccessCallback",
    "KafkaReplicatorSource",
    "PandasDataFrameSource",
    "Source",
    "SourceException",
    "StatefulSource",
]
