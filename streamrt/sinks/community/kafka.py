"""A sink for another Kafka cluster."""

from streamrt.connectors import KafkaReplicatorSink

__all__ = ["KafkaReplicatorSink"]
