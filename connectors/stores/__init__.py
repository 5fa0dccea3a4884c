"""Sinks for databases without SQL and for search engines."""
