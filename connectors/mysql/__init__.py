"""Sink for MySQL, and sources of its binary log."""
