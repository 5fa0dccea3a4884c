"""Import paths of Quix Streams work, with another name of the package in front."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import streamrt

ROOT = Path(streamrt.__file__).parent

# Every path of Quix Streams' reference that names something which is here, with the names; then paths that its examples use.
PATHS = {
    "": "Application MessageContext State StreamingDataFrame StreamingSeries message_context set_message_context",
    "app": "Application ApplicationConfig",
    "context": "message_context set_message_context",
    "logging": "configure_logging",
    "error_callbacks": "ConsumerErrorCallback ProcessingErrorCallback ProducerErrorCallback",
    "exceptions": "QuixException",
    "exceptions.base": "QuixException",
    "dataframe": "StreamingDataFrame StreamingSeries",
    "dataframe.dataframe": "StreamingDataFrame",
    "dataframe.series": "StreamingSeries",
    "dataframe.utils": "ensure_milliseconds",
    "dataframe.exceptions": """ColumnDoesNotExist GroupByDuplicate GroupByNestingLimit InvalidColumnReference
        StreamingDataFrameDuplicate""",
    "dataframe.windows.aggregations": "Aggregator Collect Collector Count First Last Max Mean Min Reduce Sum",
    "dataframe.joins.lookups.base": "BaseField BaseLookup",
    "dataframe.joins.lookups.postgresql": "PostgresLookup PostgresLookupField PostgresLookupQueryField",
    "dataframe.joins.lookups.sqlite": "SQLiteLookup SQLiteLookupField SQLiteLookupQueryField",
    "kafka.exceptions": "KafkaBrokerUnavailableError KafkaConsumerException KafkaProducerDeliveryError",
    "sinks.community.postgresql": "PostgreSQLSink PostgreSQLSinkException",
    "sinks.community.tdengine.sink": "SupertableSetter TDengineSink",
    "sources.community.influxdb3.influxdb3": "InfluxDB3Source",
    "state.exceptions": "StateError StateSerializationError",
    "state.rocksdb.exceptions": "RocksDBCorruptedError",
    "dataframe.windows": "Aggregator Collect Collector Count Earliest First Last Latest Max Mean Min Reduce Sum",
    "dataframe.joins.lookups": "BaseField BaseLookup PostgresLookup PostgresLookupField SQLiteLookup SQLiteLookupField",
    "sinks": "BaseSink BatchingSink SinkBackpressureError SinkBatch",
    "sinks.base": "BaseSink BatchingSink SinkBackpressureError SinkBatch SinkItem",
    "sinks.base.sink": "BaseSink BatchingSink",
    "sinks.base.batch": "SinkBatch",
    "sinks.base.exceptions": "SinkBackpressureError",
    "sinks.base.item": "SinkItem",
    "sinks.community.bigquery": "BigQuerySink BigQuerySinkException",
    "sinks.community.kinesis": "KinesisSink KinesisStreamNotFoundError",
    "sinks.community.pubsub": "PubSubSink PubSubTopicNotFoundError",
    "sinks.community.elasticsearch": "ElasticsearchSink",
    "sinks.community.mongodb": "MongoDBSink MongoQueryFilter",
    "sinks.community.neo4j": "Neo4jSink",
    "sinks.community.redis": "RedisSink",
    "sinks.core": "CSVSink ListSink",
    "sinks.core.csv": "CSVSink",
    "sinks.core.list": "ListSink",
    "sinks.community.file": "AzureFileSink FileSink LocalFileSink S3FileSink",
    "sinks.community.file.azure": "AzureContainerAccessDeniedError AzureContainerNotFoundError AzureFileSink",
    "sinks.community.file.base": "FileSink",
    "sinks.community.file.local": "AppendNotSupported LocalFileSink",
    "sinks.community.file.s3": "S3BucketAccessDeniedError S3BucketNotFoundError S3FileSink",
    "sinks.community.iceberg": "AWSIcebergConfig IcebergSink",
    "sinks.community.file.formats": "Format FormatName JSONFormat ParquetFormat",
    "sinks.community.file.formats.base": "Format",
    "sinks.community.file.formats.json": "JSONFormat",
    "sinks.community.file.formats.parquet": "ParquetFormat",
    "sinks.community.kafka": "KafkaReplicatorSink",
    "sources": "BaseSource CSVSource KafkaReplicatorSource Source SourceException StatefulSource",
    "sinks.core.influxdb3": "InfluxDB3Sink",
    "sinks.community.influxdb1": "InfluxDB1Sink",
    "sinks.community.mqtt": "MQTTSink",
    "sinks.community.tdengine": "TDengineSink",
    "sources.base": "BaseSource Source StatefulSource",
    "sources.base.exceptions": "SourceException",
    "sources.base.source": "BaseSource Source StatefulSource",
    "sources.core": "CSVSource KafkaReplicatorSource",
    "sources.core.csv": "CSVSource",
    "sources.community.kinesis": "KinesisSource",
    "sources.community.kinesis.consumer": "KinesisStreamShardsNotFound",
    "sources.community.kinesis.kinesis": "KinesisSource",
    "sources.core.kafka": "KafkaReplicatorSource",
    "sources.core.kafka.kafka": "KafkaReplicatorSource",
    "sources.community.file": "AzureFileSource FileSource LocalFileSource S3FileSource",
    "sources.community.file.azure": "AzureFileSource MissingAzureContainer",
    "sources.community.file.base": "FileSource",
    "sources.community.file.formats": "Format FormatName JSONFormat ParquetFormat",
    "sources.community.file.formats.base": "Format",
    "sources.community.file.formats.json": "JSONFormat",
    "sources.community.file.formats.parquet": "ParquetFormat",
    "sources.community.file.local": "LocalFileSource",
    "sources.community.file.s3": "MissingS3Bucket S3FileSource",
    "sources.community.mysql_cdc_lite": "MySqlCdcLiteError MySqlCdcLiteSource",
    "sources.community.mysql_cdc_lite.mysql_cdc_lite": "MySqlCdcLiteError MySqlCdcLiteSource",
    "sources.community.influxdb3": "InfluxDB3Source",
    "sources.community.mqtt": "MQTTSource",
    "sources.community.pandas": "PandasDataFrameSource",
    "sources.community.pubsub": "PubSubSource",
    "sources.community.pubsub.consumer": "PubSubSubscriptionNotFound",
    "sources.community.pubsub.pubsub": "PubSubSource",
    "utils.json": "dumps loads",
    "models": """KafkaMessage MessageContext MessageTimestamp Row TimestampType Topic TopicAdmin TopicConfig TopicManager
        AvroDeserializer AvroSerializer BytesDeserializer BytesSerializer Deserializer DoubleDeserializer DoubleSerializer
        IgnoreMessage IntegerDeserializer IntegerSerializer JSONDeserializer JSONSerializer ProtobufDeserializer
        ProtobufSerializer QuixDeserializer QuixEventsSerializer QuixTimeseriesSerializer SchemaRegistryClientConfig
        SchemaRegistrySerializationConfig SerializationContext SerializationError Serializer StringDeserializer
        StringSerializer""",
    "models.timestamps": "MessageTimestamp TimestampType",
    "models.messagecontext": "MessageContext",
    "models.messages": "KafkaMessage",
    "models.rows": "Row",
    "models.types": "RawConfluentKafkaMessageProto SuccessfulConfluentKafkaMessageProto",
    "models.topics": "Topic TopicAdmin TopicConfig TopicManager",
    "models.topics.admin": "TopicAdmin",
    "models.topics.exceptions": "TopicNotFoundError",
    "models.topics.manager": "TopicManager",
    "models.topics.topic": "Topic TopicConfig",
    "models.topics.utils": "merge_headers",
    "models.serializers": """AvroSerializer JSONDeserializer ProtobufSerializer QuixSerializer SchemaRegistryClientConfig
        SerializationContext StringSerializer""",
    "models.serializers.avro": "AvroDeserializer AvroSerializer",
    "models.serializers.base": "Deserializer SerializationContext Serializer",
    "models.serializers.exceptions": "IgnoreMessage SerializationError",
    "models.serializers.json": "JSONDeserializer JSONSerializer",
    "models.serializers.protobuf": "ProtobufDeserializer ProtobufSerializer",
    "models.serializers.quix": "QuixDeserializer QuixEventsSerializer QuixSerializer QuixTimeseriesSerializer",
    "models.serializers.schema_registry": "SchemaRegistryClientConfig SchemaRegistrySerializationConfig",
    "models.serializers.simple_types": """BytesDeserializer BytesSerializer DoubleDeserializer DoubleSerializer
        IntegerDeserializer IntegerSerializer StringDeserializer StringSerializer""",
    "kafka": "ConnectionConfig Consumer Producer",
    "kafka.configuration": "ConnectionConfig",
    "kafka.consumer": "BaseConsumer Consumer",
    "kafka.producer": "Producer",
    "state": "RocksDBOptions State",
    "state.base": "Transaction",
    "state.base.partition": "StorePartition",
    "state.base.state": "State",
    "state.base.store": "Store",
    "state.memory": "MemoryStore MemoryStorePartition",
    "state.memory.partition": "MemoryStorePartition",
    "state.memory.store": "MemoryStore",
    "state.rocksdb": "RocksDBOptions RocksDBStore RocksDBStorePartition",
    "state.rocksdb.options": "RocksDBOptions",
    "state.rocksdb.partition": "RocksDBStorePartition",
    "state.rocksdb.store": "RocksDBStore",
}
# Folders in which there is nothing but such paths.
FOLDERS = ("exceptions", "models/serializers", "models/topics", "sinks", "sources", "utils")


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_quix_streams_has_its_names(path: str) -> None:
    module = importlib.import_module(f"streamrt.{path}" if path else "streamrt")
    names = PATHS[path].split()
    assert [name for name in names if not hasattr(module, name)] == []
    # Type checkers take for public what is listed.
    if hasattr(module, "__all__"):
        assert set(names) <= set(module.__all__)


def test_names_are_the_same_objects_everywhere() -> None:
    # Quix Streams also has two of each: one for sinks, one for sources.
    formats = {"Format", "FormatName", "JSONFormat", "ParquetFormat"}
    homes: dict[str, set[int]] = {}
    for path, names in PATHS.items():
        module = importlib.import_module(f"streamrt.{path}" if path else "streamrt")
        for name in set(names.split()) - formats:
            homes.setdefault(name, set()).add(id(getattr(module, name)))
    assert {name: len(found) for name, found in homes.items() if len(found) > 1} == {}


def test_paths_hold_nothing_of_their_own() -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 30
    for file in files:
        kinds = {type(statement) for statement in ast.parse(file.read_text()).body}
        assert kinds <= {ast.Expr, ast.ImportFrom, ast.Assign}, file


# Each import in a process that has imported what others have made, and of this package only the packages that the path lies
# in: these come first whenever a path is imported, so paths that lie in the same package can share them.
IMPORT_EACH = """
import os, sys
import cachetools, confluent_kafka, orjson, pydantic, rich.live, sortedcontainers

def import_each(names, done):
    for name in sorted({".".join(name.split(".")[: done + 1]) for name in names}):
        below = [other for other in names if other.startswith(name + ".")]
        if not os.fork():
            try:
                __import__(name)
            except BaseException as error:
                print(name, repr(error), flush=True)
            else:
                if name in names:
                    print(name, "imported", flush=True)
                import_each(below, done + 1)
            os._exit(0)
        os.wait()

import_each(sys.argv[1:], 0)
"""


@pytest.mark.slow
def test_paths_that_lie_below_what_they_name_can_be_imported_first() -> None:
    names = [f"streamrt.{path}" for path in PATHS if path.partition(".")[0] in ("dataframe", "models", "state")]
    command = [sys.executable, "-c", IMPORT_EACH, *names]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, timeout=120, check=True)
    assert (sorted(done.stdout.splitlines()), done.stderr) == (sorted(f"{name} imported" for name in names), "")


def test_d1_every_public_name_is_here_or_named_as_absent() -> None:
    """All that version 3.28.1 has below its package, by module; modules and names with an underscore are left out."""
    page = (ROOT.parent / "docs" / "coming-from-quix-names.md").read_text()
    rows = page.partition("## Paths that are absent")[2].partition("\n## ")[0]
    absent = {name for row in rows.splitlines() for name in re.findall(r"`([\w.]+)`", row.split(" | ")[0])}
    missing = []
    for line in (Path(__file__).parent / "quix_names.txt").read_text().splitlines():
        path, _, name = line.rpartition(" ")
        above = {path[: match.start()] for match in re.finditer(r"\.|$", path)}
        if not absent & {name, *above} and not _has(f"streamrt.{path}" if path else "streamrt", name):
            missing.append(line)
    assert missing == []


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        return False
