"""Administration of topics in a cluster."""

from streamrt.kafka.cluster.admin import TopicAdmin
from streamrt.kafka.cluster.topic_config import TopicConfig

__all__ = ["TopicAdmin", "TopicConfig"]
