"""Timestamps of records, under the path of Quix Streams."""

from streamrt.records.timestamps import MessageTimestamp, TimestampType

__all__ = ["MessageTimestamp", "TimestampType"]
