"""Documents of a catalogue: what a newer version has added to them, and how long they may be.

A field that an older version of StreamRT may overlook is added under the same `v`: a version that does not know it leaves it
in the document when it changes the object. What may not be overlooked raises `v`.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from streamrt.errors import CatalogError

__all__ = ["LONGEST_RECORD", "dumped", "with_unknown_fields"]

LONGEST_RECORD = 950_000
"""Bytes of a document. Brokers take records of 1,048,588 bytes by default, and producers of 1,000,000, key included."""


def dumped(kind: str, name: str, document: Mapping[str, Any]) -> bytes:
    """Return a document as bytes.

    Args:
        kind: kind of the object, for the error.
        name: name of the object, for the error.
        document: the document.

    Raises:
        CatalogError: if it is too long for a record.
    """
    data = orjson.dumps(document)
    if len(data) > LONGEST_RECORD:
        raise CatalogError(
            f"the record of {kind} {name!r} would have {len(data)} bytes, and a catalogue keeps {LONGEST_RECORD} at most: "
            "nothing was changed; use fewer columns, or shorter comments, defaults and properties"
        )
    return data


def with_unknown_fields(document: Any, former: Any, known: Any) -> Any:
    """Return a document with those fields of its former version that this version of StreamRT does not know.

    Args:
        document: the document, as this version writes it.
        former: the document that it replaces.
        known: what this version has read of the former document, as it writes it. What only `former` has is unknown.

    Example:
        >>> with_unknown_fields({"a": 2}, {"a": 1, "z": [3]}, {"a": 1})
        {'a': 2, 'z': [3]}
    """
    if isinstance(document, dict) and isinstance(former, dict) and isinstance(known, dict):
        made = dict(document)
        for field, value in former.items():
            if field not in known:
                made.setdefault(field, value)
            elif field in document:
                made[field] = with_unknown_fields(document[field], value, known[field])
        return made
    if isinstance(document, list) and isinstance(former, list) and isinstance(known, list):
        before, read = _by_identity(former), _by_identity(known)
        return [
            with_unknown_fields(each, before[number], read[number]) if number in before and number in read else each
            for each, number in ((each, _item_identity(each)) for each in document)
        ]
    return document


def _by_identity(items: list[Any]) -> dict[Any, Any]:
    return {number: each for each in items if (number := _item_identity(each)) is not None}


def _item_identity(item: Any) -> tuple[Any, Any] | None:
    """Return what tells an item of a list from the others: the name of a column, the number of a schema."""
    if not isinstance(item, dict):
        return None
    name, version = item.get("name"), item.get("version")
    is_named = isinstance(name, str) or type(version) is int
    return (name, version) if is_named and isinstance(name, str | None) and isinstance(version, int | None) else None
