"""Readers of partitions without a consumer group."""
