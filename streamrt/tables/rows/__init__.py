"""Rows and records: one becomes the other."""
