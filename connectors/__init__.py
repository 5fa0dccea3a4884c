"""Connectors to external systems: sinks write values out, sources bring records in. One connector in each file."""

from streamrt.connectors.sinks import (
    BaseSink,
    BatchingSink,
    CSVSink,
    DriverSink,
    ListSink,
    SinkBatch,
    SinkItem,
    SparkSink,
)
from streamrt.connectors.sources import (
    BaseSource,
    CSVSource,
    PandasDataFrameSource,
    Source,
    SourceProducer,
    SourceState,
    SourceStore,
    StatefulSource,
    source_topic,
)
from streamrt.errors import SinkBackpressureError

__all__ = [
    "BaseSink",
    "BaseSource",
    "BatchingSink",
    "CSVSink",
    "CSVSource",
    "DriverSink",
    "ListSink",
    "PandasDataFrameSource",
    "SinkBackpressureError",
    "SinkBatch",
    "SinkItem",
    "Source",
    "SourceProducer",
    "SourceState",
    "SourceStore",
    "SparkSink",
    "StatefulSource",
    "source_topic",
]
