"""Sinks for Iceberg and Delta tables."""
