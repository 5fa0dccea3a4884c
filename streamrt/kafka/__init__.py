"""Kafka clients for programs: connection settings, a producer, a consumer, and the administration of topics."""

from confluent_kafka import KafkaError, KafkaException

from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.cluster.admin import TopicAdmin
from streamrt.kafka.cluster.topic_config import TopicConfig
from streamrt.kafka.connection import ConnectionConfig
from streamrt.kafka.consumer import AutoOffsetReset, Consumer
from streamrt.kafka.producer import Producer

__all__ = [
    "AutoOffsetReset",
    "ConnectionConfig",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "KafkaRequestError",
    "Producer",
    "TopicAdmin",
    "TopicConfig",
]
