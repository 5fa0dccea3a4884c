"""A source of another Kafka cluster."""

from streamrt.connectors import KafkaReplicatorSource

__all__ = ["KafkaReplicatorSource"]
