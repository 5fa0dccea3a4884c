"""Helpers that programs may use, too."""

from streamrt.dataframe.utils import ensure_milliseconds

__all__ = ["ensure_milliseconds"]
