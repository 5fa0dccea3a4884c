"""The contract of lookups."""

import abc
from collections.abc import Mapping
from typing import Any, Generic, TypedDict, TypeVar

from streamrt.errors import LookupUnavailableError
from streamrt.records import Headers

__all__ = ["BaseField", "BaseLookup", "CacheInfo", "Field", "LookupUnavailableError"]


class CacheInfo(TypedDict):
    """Statistics of a lookup's cache in this process.

    Attributes:
        hits: number of lookups answered from the cache.
        misses: number of cacheable lookups that queried the database.
        size: number of cached results.
        maxsize: maximum number of cached results.
    """

    hits: int
    misses: int
    size: int
    maxsize: int


class BaseField:
    """The description of what a lookup finds for one column. Most subclasses are frozen dataclasses."""


Field = TypeVar("Field", bound=BaseField)


class BaseLookup(abc.ABC, Generic[Field]):
    """Enriches records with data from another system.

    A lookup is sent to the processes that run tasks, so it must be picklable: open connections on first use. A process
    calls `join` for each record, from one thread at a time, so cache as much as possible.

    Raise `LookupUnavailableError` if another attempt may succeed. Any other exception counts as an error of the record.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Country(BaseField):
        ...     default: str = "unknown"
        >>> class Countries(BaseLookup[Country]):
        ...     def join(self, fields, on, value, key, timestamp, headers):
        ...         for column, field in fields.items():
        ...             value[column] = {"LYS": "France", "JFK": "USA"}.get(on, field.default)
        >>> value = {"airport": "LYS"}
        >>> Countries().join({"country": Country()}, value["airport"], value, b"key", 0, None)
        >>> value
        {'airport': 'LYS', 'country': 'France'}
    """

    @abc.abstractmethod
    def join(
        self,
        fields: Mapping[str, Field],
        on: Any,
        value: dict[str, Any],
        key: Any,
        timestamp: int,
        headers: Headers | None,
    ) -> None:
        """Set a column of `value` for each field.

        Args:
            fields: the fields by column, from the call of `join_lookup`.
            on: the value to look up: the record's key, its column, or the result of the function `on`.
            value: the record's value, to be changed in place.
            key: the record's key.
            timestamp: its timestamp, in milliseconds since the Unix epoch.
            headers: its headers, or None without headers.

        Raises:
            LookupUnavailableError: if the system is not available now; the record is processed again.
        """

    def cache_info(self) -> CacheInfo | None:
        """Return statistics of the cache in this process, for metrics; None without a cache.

        Hits and misses count from the start of the process, or from zero after the cache was cleared. Each report asks for
        them, and no record.
        """
        return None
