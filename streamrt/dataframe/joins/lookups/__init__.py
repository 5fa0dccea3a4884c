"""Lookups for `join_lookup`: the names of `streamrt.joins.lookups`."""

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
    TableField,
    TableLookup,
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
    "TableField",
    "TableLookup",
]
