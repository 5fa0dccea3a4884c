"""Queries of present rows, by DuckDB."""
