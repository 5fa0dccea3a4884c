"""What is asked of a cluster about topics."""

from streamrt.kafka.admin import TopicAdmin, TopicConfig

__all__ = ["TopicAdmin", "TopicConfig"]
