"""Administration of topics in a cluster."""

from streamrt.kafka.admin import TopicAdmin
from streamrt.kafka.topic_config import TopicConfig

__all__ = ["TopicAdmin", "TopicConfig"]
