"""Joins of dataframes, and lookups for them."""

from streamrt.dataframe.joins.joining import JoiningFrame

__all__ = ["JoiningFrame"]
