"""Lookups for joins, under the path of Quix Streams."""
