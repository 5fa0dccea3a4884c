"""Manager of the topics of an application."""

from streamrt.topics.manager import TopicManager

__all__ = ["TopicManager"]
