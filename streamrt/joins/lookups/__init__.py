"""Lookups for `join_lookup`: databases, or a custom class."""

from streamrt.joins.lookups.base import BaseField, BaseLookup, CacheInfo, LookupUnavailableError
from streamrt.joins.lookups.buffer import LookupBuffer
from streamrt.joins.lookups.postgres import PostgresLookup, PostgresLookupField, PostgresLookupQueryField
from streamrt.joins.lookups.sqlite import SQLiteLookup, SQLiteLookupField, SQLiteLookupQueryField
from streamrt.joins.lookups.table import TableField, TableLookup

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
