"""Exceptions about topics, and their names in Quix Streams."""

from streamrt.errors import ConfigurationError as TopicNameLengthExceeded
from streamrt.errors import TopicConfigurationError, TopicCreationError, TopicNotFoundError
from streamrt.errors import TopicConfigurationError as TopicConfigurationMismatch
from streamrt.errors import TopicConfigurationError as TopicPartitionsMismatch
from streamrt.errors import TopicCreationError as CreateTopicFailure
from streamrt.errors import TopicCreationError as CreateTopicTimeout
from streamrt.errors import TopicCreationError as TopicPermissionError

__all__ = [
    "CreateTopicFailure",
    "CreateTopicTimeout",
    "TopicConfigurationError",
    "TopicConfigurationMismatch",
    "TopicCreationError",
    "TopicNameLengthExceeded",
    "TopicNotFoundError",
    "TopicPartitionsMismatch",
    "TopicPermissionError",
]
