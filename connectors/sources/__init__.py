"""Sources: where records come into Kafka."""

from streamrt.connectors.sources.base import (
    BaseSource,
    Instances,
    Source,
    SourceProducer,
    SourceState,
    SourceStore,
    StatefulSource,
    source_topic,
)
from streamrt.connectors.sources.csv import CSVSource
from streamrt.connectors.sources.pandas import PandasDataFrameSource

__all__ = [
    "BaseSource",
    "CSVSource",
    "Instances",
    "PandasDataFrameSource",
    "Source",
    "SourceProducer",
    "SourceState",
    "SourceStore",
    "StatefulSource",
    "source_topic",
]
