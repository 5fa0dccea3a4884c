"""The lookup in PostgreSQL, under the path of Quix Streams."""

from streamrt.joins.lookups import PostgresLookup, PostgresLookupField, PostgresLookupQueryField

__all__ = ["PostgresLookup", "PostgresLookupField", "PostgresLookupQueryField"]
