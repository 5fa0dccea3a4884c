"""Common parts of tests of sinks for tables of files."""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from streamrt.connectors import PositionChange, SinkCommit, SinkPosition
from streamrt.testing.connectors import Written

VALUES = (
    {"n": 1, "text": None},
    {"n": 2, "text": "größer 🚆"},
    {"n": 3, "items": [1, None, 3], "nested": {"a": {"b": 1.5}}},
    {"n": 4, 'odd "name"; DROP TABLE x --': True},
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def written(rows: Iterable[Mapping[str, Any]]) -> list[Written]:
    """Return rows as the values that were written. Null is not a value, but for `text`, which says so in the first value."""
    found = []
    for row in rows:
        fields = dict(row)
        key, timestamp = fields.pop("_key", None), fields.pop("_timestamp", None)
        value = {name: field for name, field in fields.items() if field is not None}
        if value.get("n") == 1:
            value["text"] = None
        milliseconds = None if timestamp is None else (timestamp - _EPOCH) // datetime.timedelta(milliseconds=1)
        found.append(Written(value, key, milliseconds))
    return found


def commit_of(*moves: tuple[int, SinkPosition | None, SinkPosition], group: str = "shop") -> SinkCommit:
    """Return a commit that moves positions of partitions of the topic orders."""
    return SinkCommit(
        group, {("orders", partition): PositionChange(before, after) for partition, before, after in moves}
    )
