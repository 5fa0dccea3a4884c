"""Sources without further dependencies."""

from streamrt.connectors import CSVSource, KafkaReplicatorSource

__all__ = ["CSVSource", "KafkaReplicatorSource"]
