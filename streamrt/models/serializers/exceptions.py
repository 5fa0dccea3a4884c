"""Exceptions of serializers."""

from streamrt.errors import IgnoreMessage, SerializationError

__all__ = ["IgnoreMessage", "SerializationError"]
