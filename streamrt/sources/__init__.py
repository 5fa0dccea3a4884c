"""The sources of `streamrt.connectors`."""

from streamrt.connectors import (
    BaseSource,
    CSVSource,
    KafkaReplicatorSource,
    PandasDataFrameSource,
    Source,
    StatefulSource,
)
from streamrt.errors import SourceError as SourceException

__all__ = [
    "BaseSource",
    "CSVSource",
    "KafkaReplicatorSource",
    "PandasDataFrameSource",
    "Source",
    "SourceException",
    "StatefulSource",
]
