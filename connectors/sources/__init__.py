"""Sources: where records come into Kafka."""

from streamrt.connectors.sources.base import BaseSource, Instances, Source, source_topic
from streamrt.connectors.sources.csv import CSVSource
from streamrt.connectors.sources.pandas import PandasDataFrameSource
from streamrt.connectors.sources.protocols import SourceProducer, SourceState, SourceStore
from streamrt.connectors.sources.stateful import StatefulSource

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
