"""A sink for MQTT brokers."""

from streamrt.connectors import MQTTSink

__all__ = ["MQTTSink"]
