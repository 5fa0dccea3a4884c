"""Sinks for SQL databases: what all share, SQLite, DuckDB and ClickHouse."""
