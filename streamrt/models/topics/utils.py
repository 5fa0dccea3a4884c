"""Helpers for the headers of produced records."""

from streamrt.records.headers import merge_headers

__all__ = ["merge_headers"]
