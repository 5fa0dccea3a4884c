"""What serializers raise."""

from streamrt.errors import IgnoreMessage, SerializationError

__all__ = ["IgnoreMessage", "SerializationError"]
