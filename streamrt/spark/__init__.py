"""Spark: sessions, their slots, and the micro-batch runner."""
