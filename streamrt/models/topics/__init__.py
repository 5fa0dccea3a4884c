"""Topics, re-exported from `streamrt.topics`."""

from streamrt.kafka.admin import TopicAdmin
from streamrt.kafka.topic_config import TopicConfig
from streamrt.topics import TimestampExtractor, Topic, TopicManager

__all__ = ["TimestampExtractor", "Topic", "TopicAdmin", "TopicConfig", "TopicManager"]
