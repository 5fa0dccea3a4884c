"""Joins: lookups for `join_lookup`, and the types of the arguments of joins."""

from streamrt.joins.asof import AsOfHow
from streamrt.joins.interval import IntervalHow
from streamrt.joins.lookups import (
    BaseField,
    BaseLookup,
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
from streamrt.joins.merging import OnMerge

__all__ = [
    "AsOfHow",
    "BaseField",
    "BaseLookup",
    "IntervalHow",
    "LookupBuffer",
    "LookupUnavailableError",
    "OnMerge",
    "PostgresLookup",
    "PostgresLookupField",
    "PostgresLookupQueryField",
    "SQLiteLookup",
    "SQLiteLookupField",
    "SQLiteLookupQueryField",
    "TableField",
    "TableLookup",
]
