"""Contracts of lookups, under the path of Quix Streams."""

from streamrt.joins.lookups import BaseField, BaseLookup

__all__ = ["BaseField", "BaseLookup"]
