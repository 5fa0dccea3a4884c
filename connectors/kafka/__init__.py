"""Connectors for other Kafka clusters."""
