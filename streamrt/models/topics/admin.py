"""Administration of topics in a cluster."""

from streamrt.kafka.admin import TopicAdmin, TopicConfig

__all__ = ["TopicAdmin", "TopicConfig"]
