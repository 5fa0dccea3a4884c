"""Connectors to external systems: sinks write values out, sources bring records in. One connector in each file.

Modules of connectors are imported when one of their names is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from streamrt.connectors.sinks import (
    BaseSink,
    BatchingSink,
    CSVSink,
    DriverSink,
    ListSink,
    PositionChange,
    SinkBatch,
    SinkCommit,
    SinkItem,
    SinkPosition,
    SparkSink,
    TransactionalSink,
)
from streamrt.connectors.sources import (
    BaseSource,
    CSVSource,
    Instances,
    PandasDataFrameSource,
    Source,
    SourceProducer,
    SourceState,
    SourceStore,
    StatefulSource,
    source_topic,
)
from streamrt.errors import SinkBackpressureError

if TYPE_CHECKING:
    from streamrt.connectors.sinks.azure_files import AzureFileSink
    from streamrt.connectors.sinks.bigquery import BigQuerySink
    from streamrt.connectors.sinks.clickhouse import ClickHouseSink
    from streamrt.connectors.sinks.delta import DeltaSink
    from streamrt.connectors.sinks.duckdb import DuckDBSink
    from streamrt.connectors.sinks.elasticsearch import ElasticsearchSink
    from streamrt.connectors.sinks.files import FileSink
    from streamrt.connectors.sinks.gcs_files import GCSFileSink
    from streamrt.connectors.sinks.iceberg import IcebergSink
    from streamrt.connectors.sinks.iceberg_config import AWSIcebergConfig
    from streamrt.connectors.sinks.influxdb1 import InfluxDB1Sink
    from streamrt.connectors.sinks.influxdb3 import InfluxDB3Sink
    from streamrt.connectors.sinks.kafka_replicator import KafkaReplicatorSink
    from streamrt.connectors.sinks.kinesis import KinesisSink
    from streamrt.connectors.sinks.local_files import LocalFileSink
    from streamrt.connectors.sinks.mongodb import MongoDBSink
    from streamrt.connectors.sinks.mqtt import MQTTSink
    from streamrt.connectors.sinks.mysql import MySQLSink
    from streamrt.connectors.sinks.neo4j import Neo4jSink
    from streamrt.connectors.sinks.opensearch import OpenSearchSink
    from streamrt.connectors.sinks.postgresql import PostgreSQLSink
    from streamrt.connectors.sinks.pubsub import PubSubSink
    from streamrt.connectors.sinks.redis import RedisSink
    from streamrt.connectors.sinks.s3_files import S3FileSink
    from streamrt.connectors.sinks.sqlite import SQLiteSink
    from streamrt.connectors.sinks.sqs import SQSSink
    from streamrt.connectors.sinks.tdengine import TDengineSink
    from streamrt.connectors.sinks.webhook import WebhookSink
    from streamrt.connectors.sources.azure_files import AzureFileSource
    from streamrt.connectors.sources.collection import CollectionSource
    from streamrt.connectors.sources.files import FileSource
    from streamrt.connectors.sources.gcs_files import GCSFileSource
    from streamrt.connectors.sources.http_polling import HTTPPollingSource
    from streamrt.connectors.sources.influxdb3 import InfluxDB3Source
    from streamrt.connectors.sources.kafka_replicator import KafkaReplicatorSource
    from streamrt.connectors.sources.kinesis import KinesisSource
    from streamrt.connectors.sources.local_files import LocalFileSource
    from streamrt.connectors.sources.mqtt import MQTTSource
    from streamrt.connectors.sources.mysql_cdc import MySQLCdcSource
    from streamrt.connectors.sources.mysql_cdc_lite import MySqlCdcLiteSource
    from streamrt.connectors.sources.numbers import NumberSequenceSource
    from streamrt.connectors.sources.polars import PolarsDataFrameSource
    from streamrt.connectors.sources.postgres_cdc import PostgresCdcSource
    from streamrt.connectors.sources.pubsub import PubSubSource
    from streamrt.connectors.sources.rate import RateSource
    from streamrt.connectors.sources.s3_files import S3FileSource
    from streamrt.connectors.sources.server_sent_events import ServerSentEventsSource
    from streamrt.connectors.sources.sqs import SQSSource
    from streamrt.connectors.sources.websocket import WebSocketSource

# The names that `__getattr__` imports, by module. They stand below TYPE_CHECKING, too, for type checkers and editors.
_MODULES = {
    "sinks.azure_files": ("AzureFileSink",),
    "sinks.bigquery": ("BigQuerySink",),
    "sinks.clickhouse": ("ClickHouseSink",),
    "sinks.delta": ("DeltaSink",),
    "sinks.duckdb": ("DuckDBSink",),
    "sinks.elasticsearch": ("ElasticsearchSink",),
    "sinks.files": ("FileSink",),
    "sinks.gcs_files": ("GCSFileSink",),
    "sinks.iceberg": ("IcebergSink",),
    "sinks.iceberg_config": ("AWSIcebergConfig",),
    "sinks.influxdb1": ("InfluxDB1Sink",),
    "sinks.influxdb3": ("InfluxDB3Sink",),
    "sinks.kafka_replicator": ("KafkaReplicatorSink",),
    "sinks.kinesis": ("KinesisSink",),
    "sinks.local_files": ("LocalFileSink",),
    "sinks.mongodb": ("MongoDBSink",),
    "sinks.mqtt": ("MQTTSink",),
    "sinks.mysql": ("MySQLSink",),
    "sinks.neo4j": ("Neo4jSink",),
    "sinks.opensearch": ("OpenSearchSink",),
    "sinks.postgresql": ("PostgreSQLSink",),
    "sinks.pubsub": ("PubSubSink",),
    "sinks.redis": ("RedisSink",),
    "sinks.s3_files": ("S3FileSink",),
    "sinks.sqlite": ("SQLiteSink",),
    "sinks.sqs": ("SQSSink",),
    "sinks.tdengine": ("TDengineSink",),
    "sinks.webhook": ("WebhookSink",),
    "sources.azure_files": ("AzureFileSource",),
    "sources.collection": ("CollectionSource",),
    "sources.files": ("FileSource",),
    "sources.gcs_files": ("GCSFileSource",),
    "sources.http_polling": ("HTTPPollingSource",),
    "sources.influxdb3": ("InfluxDB3Source",),
    "sources.kafka_replicator": ("KafkaReplicatorSource",),
    "sources.kinesis": ("KinesisSource",),
    "sources.local_files": ("LocalFileSource",),
    "sources.mqtt": ("MQTTSource",),
    "sources.mysql_cdc": ("MySQLCdcSource",),
    "sources.mysql_cdc_lite": ("MySqlCdcLiteSource",),
    "sources.numbers": ("NumberSequenceSource",),
    "sources.polars": ("PolarsDataFrameSource",),
    "sources.postgres_cdc": ("PostgresCdcSource",),
    "sources.pubsub": ("PubSubSource",),
    "sources.rate": ("RateSource",),
    "sources.s3_files": ("S3FileSource",),
    "sources.server_sent_events": ("ServerSentEventsSource",),
    "sources.sqs": ("SQSSource",),
    "sources.websocket": ("WebSocketSource",),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AWSIcebergConfig",
    "AzureFileSink",
    "AzureFileSource",
    "BaseSink",
    "BaseSource",
    "BatchingSink",
    "BigQuerySink",
    "CSVSink",
    "CSVSource",
    "ClickHouseSink",
    "CollectionSource",
    "DeltaSink",
    "DriverSink",
    "DuckDBSink",
    "ElasticsearchSink",
    "FileSink",
    "FileSource",
    "GCSFileSink",
    "GCSFileSource",
    "HTTPPollingSource",
    "IcebergSink",
    "InfluxDB1Sink",
    "InfluxDB3Sink",
    "InfluxDB3Source",
    "Instances",
    "KafkaReplicatorSink",
    "KafkaReplicatorSource",
    "KinesisSink",
    "KinesisSource",
    "ListSink",
    "LocalFileSink",
    "LocalFileSource",
    "MQTTSink",
    "MQTTSource",
    "MongoDBSink",
    "MySQLCdcSource",
    "MySQLSink",
    "MySqlCdcLiteSource",
    "Neo4jSink",
    "NumberSequenceSource",
    "OpenSearchSink",
    "PandasDataFrameSource",
    "PolarsDataFrameSource",
    "PositionChange",
    "PostgreSQLSink",
    "PostgresCdcSource",
    "PubSubSink",
    "PubSubSource",
    "RateSource",
    "RedisSink",
    "S3FileSink",
    "S3FileSource",
    "SQLiteSink",
    "SQSSink",
    "SQSSource",
    "ServerSentEventsSource",
    "SinkBackpressureError",
    "SinkBatch",
    "SinkCommit",
    "SinkItem",
    "SinkPosition",
    "Source",
    "SourceProducer",
    "SourceState",
    "SourceStore",
    "SparkSink",
    "StatefulSource",
    "TDengineSink",
    "TransactionalSink",
    "WebSocketSource",
    "WebhookSink",
    "source_topic",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
