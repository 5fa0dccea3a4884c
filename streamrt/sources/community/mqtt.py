"""A source for MQTT brokers."""

from streamrt.connectors import MQTTSource

__all__ = ["MQTTSource"]
