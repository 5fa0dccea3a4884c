"""Reads tables: once, and as they grow."""
