"""Helpers that programs may also use."""

from streamrt.dataframe.utils import ensure_milliseconds

__all__ = ["ensure_milliseconds"]
