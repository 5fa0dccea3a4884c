"""Topics, re-exported from `streamrt.topics`."""

from streamrt.kafka.cluster.admin import TopicAdmin
from streamrt.kafka.cluster.topic_config import TopicConfig
from streamrt.topics import TimestampExtractor, Topic, TopicManager

__all__ = ["TimestampExtractor", "Topic", "TopicAdmin", "TopicConfig", "TopicManager"]
