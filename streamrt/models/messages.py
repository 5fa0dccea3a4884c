"""Records that are ready to be produced, or consumed and deserialized."""

from streamrt.topics.topic import KafkaMessage

__all__ = ["KafkaMessage"]
