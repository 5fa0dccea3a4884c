"""The buffer of lookups, under the path of Quix Streams."""

from streamrt.joins.lookups import LookupBuffer

__all__ = ["LookupBuffer"]
