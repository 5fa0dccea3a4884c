"""A topic and its settings."""

from streamrt.kafka.cluster.topic_config import TopicConfig
from streamrt.topics.topic import TimestampExtractor, Topic

__all__ = ["TimestampExtractor", "Topic", "TopicConfig"]
