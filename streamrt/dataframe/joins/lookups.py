"""Lookups of `join_lookup`: what `streamrt.joins.lookups` has."""

from streamrt.joins.lookups import (
    BaseField,
    BaseLookup,
    CacheInfo,
    LookupBuffer,
    LookupUnavailableError,
    PostgresLookup,
    PostgresLookupField,
    PostgresLookupQueryField,
    SQLiteLookup,
    SQLiteLookupField,
    SQLiteLookupQueryField,
)

__all__ = [
    "BaseField",
    "BaseLookup",
    "CacheInfo",
    "LookupBuffer",
    "LookupUnavailableError",
    "PostgresLookup",
    "PostgresLookupField",
    "PostgresLookupQueryField",
    "SQLiteLookup",
    "SQLiteLookupField",
    "SQLiteLookupQueryField",
]
