"""Connectors to systems outside Kafka: the package that sinks and sources will live in."""
