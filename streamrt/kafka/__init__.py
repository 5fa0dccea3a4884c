"""Kafka clients: connection, producers, consumer, changelog reader, admin, group member, and options for Java's clients."""

from confluent_kafka import KafkaError, KafkaException

from streamrt.kafka.admin import TopicAdmin
from streamrt.kafka.changelog import ChangelogBatch, ChangelogReader
from streamrt.kafka.client import KafkaRequestError, OffsetMetadata, partition_offsets, partitions_of
from streamrt.kafka.committed import CommittedOffset
from streamrt.kafka.connection import ConnectionConfig, SecretsNotPicklableError, as_connection
from streamrt.kafka.consumer import AutoOffsetReset, Consumer
from streamrt.kafka.feed import PartitionFeed
from streamrt.kafka.group import GroupMember
from streamrt.kafka.group_state import GroupAssignment, GroupFencedError, GroupState
from streamrt.kafka.inputs import InputBatch, InputReader
from streamrt.kafka.java import ConsumerOptions, java_client_options
from streamrt.kafka.java_connection import java_system_properties
from streamrt.kafka.offsets import IsolationLevelName
from streamrt.kafka.partitioner import murmur2, partition_for
from streamrt.kafka.producer import Producer
from streamrt.kafka.topic_config import TopicConfig, TopicDefinition
from streamrt.kafka.transactions import KafkaTransactionalWriter, WriterState, transactional_id
from streamrt.kafka.writer import KafkaRecordWriter, WriterFailedError

__all__ = [
    "AutoOffsetReset",
    "ChangelogBatch",
    "ChangelogReader",
    "CommittedOffset",
    "ConnectionConfig",
    "Consumer",
    "ConsumerOptions",
    "GroupAssignment",
    "GroupFencedError",
    "GroupMember",
    "GroupState",
    "InputBatch",
    "InputReader",
    "IsolationLevelName",
    "KafkaError",
    "KafkaException",
    "KafkaRecordWriter",
    "KafkaRequestError",
    "KafkaTransactionalWriter",
    "OffsetMetadata",
    "PartitionFeed",
    "Producer",
    "SecretsNotPicklableError",
    "TopicAdmin",
    "TopicConfig",
    "TopicDefinition",
    "WriterFailedError",
    "WriterState",
    "as_connection",
    "java_client_options",
    "java_system_properties",
    "murmur2",
    "partition_for",
    "partition_offsets",
    "partitions_of",
    "transactional_id",
]
