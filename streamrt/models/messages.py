"""Records that are ready to be produced, or that were consumed and deserialized."""

from streamrt.topics.topic import KafkaMessage

__all__ = ["KafkaMessage"]
