"""Joins: of records of two streams with the same key, and of records with data outside Kafka."""

from streamrt.joins.asof import AsOfHow, AsOfJoin
from streamrt.joins.interval import IntervalHow, IntervalJoin
from streamrt.joins.lookup import BufferedLookupJoin, LookupJoin
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
)
from streamrt.joins.merging import OnMerge, merge_of

__all__ = [
    "AsOfHow",
    "AsOfJoin",
    "BaseField",
    "BaseLookup",
    "BufferedLookupJoin",
    "IntervalHow",
    "IntervalJoin",
    "LookupBuffer",
    "LookupJoin",
    "LookupUnavailableError",
    "OnMerge",
    "PostgresLookup",
    "PostgresLookupField",
    "PostgresLookupQueryField",
    "SQLiteLookup",
    "SQLiteLookupField",
    "SQLiteLookupQueryField",
    "merge_of",
]
