"""Kafka clients: connection, producer, consumer, admin, group member, and options for Java's clients."""

from confluent_kafka import KafkaError, KafkaException

from streamrt.kafka.admin import IsolationLevelName, TopicAdmin, TopicConfig, TopicDefinition
from streamrt.kafka.client import KafkaRequestError, partition_offsets, partitions_of
from streamrt.kafka.connection import ConnectionConfig, SecretsNotPicklableError, as_connection
from streamrt.kafka.consumer import AutoOffsetReset, Consumer
from streamrt.kafka.group import GroupMember
from streamrt.kafka.group_state import GroupAssignment, GroupFencedError, GroupState
from streamrt.kafka.java import ConsumerOptions, java_client_options
from streamrt.kafka.java_connection import java_system_properties
from streamrt.kafka.producer import Producer

__all__ = [
    "AutoOffsetReset",
    "ConnectionConfig",
    "Consumer",
    "ConsumerOptions",
    "GroupAssignment",
    "GroupFencedError",
    "GroupMember",
    "GroupState",
    "IsolationLevelName",
    "KafkaError",
    "KafkaException",
    "KafkaRequestError",
    "Producer",
    "SecretsNotPicklableError",
    "TopicAdmin",
    "TopicConfig",
    "TopicDefinition",
    "as_connection",
    "java_client_options",
    "java_system_properties",
    "partition_offsets",
    "partitions_of",
]
