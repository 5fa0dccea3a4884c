"""Sink for PostgreSQL, and the source of its logical replication."""
