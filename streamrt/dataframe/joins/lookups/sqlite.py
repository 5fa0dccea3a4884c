"""The lookup in SQLite, under the path of Quix Streams."""

from streamrt.joins.lookups import SQLiteLookup, SQLiteLookupField, SQLiteLookupQueryField

__all__ = ["SQLiteLookup", "SQLiteLookupField", "SQLiteLookupQueryField"]
