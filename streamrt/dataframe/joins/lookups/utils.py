"""Counters of lookup caches, under the path of Quix Streams."""

from streamrt.joins.lookups import CacheInfo

__all__ = ["CacheInfo"]
