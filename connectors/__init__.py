"""Connectors to external systems: sinks write values out, sources bring records in. One connector in each file.

`sinks` and `sources` have the contracts, and connectors without a system. The other folders have one kind of system each.

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
    from streamrt.connectors.amazon.kinesis_sink import KinesisSink
    from streamrt.connectors.amazon.kinesis_source import KinesisSource
    from streamrt.connectors.amazon.sqs_sink import SQSSink
    from streamrt.connectors.amazon.sqs_source import SQSSource
    from streamrt.connectors.file_sinks.azure_file_sink import AzureFileSink
    from streamrt.connectors.file_sinks.file_sink import FileSink
    from streamrt.connectors.file_sinks.gcs_file_sink import GCSFileSink
    from streamrt.connectors.file_sinks.local_file_sink import LocalFileSink
    from streamrt.connectors.file_sinks.rolling import DateFolders, FieldFolders, Rolling
    from streamrt.connectors.file_sinks.s3_file_sink import S3FileSink
    from streamrt.connectors.file_sources.azure_file_source import AzureFileSource
    from streamrt.connectors.file_sources.file_source import FileSource
    from streamrt.connectors.file_sources.gcs_file_source import GCSFileSource
    from streamrt.connectors.file_sources.local_file_source import LocalFileSource
    from streamrt.connectors.file_sources.s3_file_source import S3FileSource
    from streamrt.connectors.google.bigquery_sink import BigQuerySink
    from streamrt.connectors.google.pubsub_sink import PubSubSink
    from streamrt.connectors.google.pubsub_source import PubSubSource
    from streamrt.connectors.http.http_polling import HTTPPollingSource
    from streamrt.connectors.http.server_sent_events import ServerSentEventsSource
    from streamrt.connectors.http.webhook_sink import WebhookSink
    from streamrt.connectors.http.websocket_source import WebSocketSource
    from streamrt.connectors.kafka.replicator_sink import KafkaReplicatorSink
    from streamrt.connectors.kafka.replicator_source import KafkaReplicatorSource
    from streamrt.connectors.lakes.delta_sink import DeltaSink
    from streamrt.connectors.lakes.iceberg_config import AWSIcebergConfig
    from streamrt.connectors.lakes.iceberg_sink import IcebergSink
    from streamrt.connectors.mqtt.mqtt_sink import MQTTSink
    from streamrt.connectors.mqtt.mqtt_source import MQTTSource
    from streamrt.connectors.mysql.mysql_cdc import MySQLCdcSource
    from streamrt.connectors.mysql.mysql_cdc_lite import MySqlCdcLiteSource
    from streamrt.connectors.mysql.mysql_sink import MySQLSink
    from streamrt.connectors.postgresql.postgres_cdc import PostgresCdcSource
    from streamrt.connectors.postgresql.postgresql_sink import PostgreSQLSink
    from streamrt.connectors.sources.bad_records import BadRecord
    from streamrt.connectors.sources.collection import CollectionSource
    from streamrt.connectors.sources.numbers import NumberSequenceSource
    from streamrt.connectors.sources.polars import PolarsDataFrameSource
    from streamrt.connectors.sources.rate import RateSource
    from streamrt.connectors.sql.clickhouse_sink import ClickHouseSink
    from streamrt.connectors.sql.duckdb_sink import DuckDBSink
    from streamrt.connectors.sql.sqlite_sink import SQLiteSink
    from streamrt.connectors.stores.elasticsearch_sink import ElasticsearchSink
    from streamrt.connectors.stores.mongodb_sink import MongoDBSink
    from streamrt.connectors.stores.neo4j_sink import Neo4jSink
    from streamrt.connectors.stores.opensearch_sink import OpenSearchSink
    from streamrt.connectors.stores.redis_sink import RedisSink
    from streamrt.connectors.time_series.influxdb1_sink import InfluxDB1Sink
    from streamrt.connectors.time_series.influxdb3_sink import InfluxDB3Sink
    from streamrt.connectors.time_series.influxdb3_source import InfluxDB3Source
    from streamrt.connectors.time_series.tdengine_sink import TDengineSink

# The names that `__getattr__` imports, by module. They also stand below TYPE_CHECKING, for type checkers and editors.
_MODULES = {
    "file_sinks.azure_file_sink": ("AzureFileSink",),
    "google.bigquery_sink": ("BigQuerySink",),
    "sql.clickhouse_sink": ("ClickHouseSink",),
    "lakes.delta_sink": ("DeltaSink",),
    "sql.duckdb_sink": ("DuckDBSink",),
    "stores.elasticsearch_sink": ("ElasticsearchSink",),
    "file_sinks.file_sink": ("FileSink",),
    "file_sinks.gcs_file_sink": ("GCSFileSink",),
    "lakes.iceberg_sink": ("IcebergSink",),
    "lakes.iceberg_config": ("AWSIcebergConfig",),
    "time_series.influxdb1_sink": ("InfluxDB1Sink",),
    "time_series.influxdb3_sink": ("InfluxDB3Sink",),
    "kafka.replicator_sink": ("KafkaReplicatorSink",),
    "amazon.kinesis_sink": ("KinesisSink",),
    "file_sinks.local_file_sink": ("LocalFileSink",),
    "stores.mongodb_sink": ("MongoDBSink",),
    "mqtt.mqtt_sink": ("MQTTSink",),
    "mysql.mysql_sink": ("MySQLSink",),
    "stores.neo4j_sink": ("Neo4jSink",),
    "stores.opensearch_sink": ("OpenSearchSink",),
    "postgresql.postgresql_sink": ("PostgreSQLSink",),
    "google.pubsub_sink": ("PubSubSink",),
    "stores.redis_sink": ("RedisSink",),
    "file_sinks.rolling": ("DateFolders", "FieldFolders", "Rolling"),
    "file_sinks.s3_file_sink": ("S3FileSink",),
    "sql.sqlite_sink": ("SQLiteSink",),
    "amazon.sqs_sink": ("SQSSink",),
    "time_series.tdengine_sink": ("TDengineSink",),
    "http.webhook_sink": ("WebhookSink",),
    "file_sources.azure_file_source": ("AzureFileSource",),
    "sources.bad_records": ("BadRecord",),
    "sources.collection": ("CollectionSource",),
    "file_sources.file_source": ("FileSource",),
    "file_sources.gcs_file_source": ("GCSFileSource",),
    "http.http_polling": ("HTTPPollingSource",),
    "time_series.influxdb3_source": ("InfluxDB3Source",),
    "kafka.replicator_source": ("KafkaReplicatorSource",),
    "amazon.kinesis_source": ("KinesisSource",),
    "file_sources.local_file_source": ("LocalFileSource",),
    "mqtt.mqtt_source": ("MQTTSource",),
    "mysql.mysql_cdc": ("MySQLCdcSource",),
    "mysql.mysql_cdc_lite": ("MySqlCdcLiteSource",),
    "sources.numbers": ("NumberSequenceSource",),
    "sources.polars": ("PolarsDataFrameSource",),
    "postgresql.postgres_cdc": ("PostgresCdcSource",),
    "google.pubsub_source": ("PubSubSource",),
    "sources.rate": ("RateSource",),
    "file_sources.s3_file_source": ("S3FileSource",),
    "http.server_sent_events": ("ServerSentEventsSource",),
    "amazon.sqs_source": ("SQSSource",),
    "http.websocket_source": ("WebSocketSource",),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AWSIcebergConfig",
    "AzureFileSink",
    "AzureFileSource",
    "BadRecord",
    "BaseSink",
    "BaseSource",
    "BatchingSink",
    "BigQuerySink",
    "CSVSink",
    "CSVSource",
    "ClickHouseSink",
    "CollectionSource",
    "DateFolders",
    "DeltaSink",
    "DriverSink",
    "DuckDBSink",
    "ElasticsearchSink",
    "FieldFolders",
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
    "Rolling",
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
