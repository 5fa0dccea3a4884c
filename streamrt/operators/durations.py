"""Conversion of durations in arguments."""

from streamrt.topics.durations import milliseconds

__all__ = ["milliseconds"]
