"""The contract of lookups."""

import abc
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from streamrt.errors import LookupUnavailableError
from streamrt.models import Headers

__all__ = ["BaseField", "BaseLookup", "Field", "LookupUnavailableError"]


class BaseField:
    """What a lookup shall find for one column. Subclasses say how; most are frozen dataclasses."""


Field = TypeVar("Field", bound=BaseField)


class BaseLookup(abc.ABC, Generic[Field]):
    """Enriches records with what it finds elsewhere.

    A lookup travels to the processes that run tasks: it must be picklable, so open connections when they are first used. One
    process calls `join` from one thread at a time, for each record, so cache what can be cached.

    Raise `LookupUnavailableError` where another attempt may succeed. Everything else counts as an error of the record.

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
            fields: the fields by column, as `join_lookup` was given them.
            on: what to look up: the record's key, its column, or what the function `on` returned.
            value: the record's value, to be changed in place.
            key: the record's key.
            timestamp: its timestamp, in milliseconds since the Unix epoch.
            headers: its headers, or None where there are none.

        Raises:
            LookupUnavailableError: if nothing can be found out now; the record is processed again.
        """
