"""Exceptions about topics."""

from streamrt.errors import TopicConfigurationError, TopicCreationError, TopicNotFoundError

__all__ = ["TopicConfigurationError", "TopicCreationError", "TopicNotFoundError"]
