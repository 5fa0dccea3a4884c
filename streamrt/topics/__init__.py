"""Topics: their contents (serializers, timestamps) and their settings in the cluster (partitions)."""

from streamrt.kafka import TopicConfig
from streamrt.topics.administration import TopicAdministration
from streamrt.topics.dead_letters import DeadLetter, DeadLetters, ErrorPolicies, ErrorPolicy, ErrorStage, OnError
from streamrt.topics.internal import changelog_topic_name, repartition_topic_name
from streamrt.topics.manager import TopicManager
from streamrt.topics.settings import config_differences, refuse_different_counts
from streamrt.topics.topic import KafkaMessage, TimestampExtractor, Topic
from streamrt.topics.watermarks import WatermarkGenerator, WatermarkStrategy, WhenAllIdle

__all__ = [
    "DeadLetter",
    "DeadLetters",
    "ErrorPolicies",
    "ErrorPolicy",
    "ErrorStage",
    "KafkaMessage",
    "OnError",
    "TimestampExtractor",
    "Topic",
    "TopicAdministration",
    "TopicConfig",
    "TopicManager",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "WhenAllIdle",
    "changelog_topic_name",
    "config_differences",
    "refuse_different_counts",
    "repartition_topic_name",
]
