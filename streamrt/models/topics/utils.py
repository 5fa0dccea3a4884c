"""Helpers for the headers of produced records."""

from streamrt.models.headers import merge_headers

__all__ = ["merge_headers"]
