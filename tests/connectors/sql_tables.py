"""Common parts of tests of sinks for SQL databases."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from streamrt.connectors import SinkBatch, SinkItem
from streamrt.testing.connectors import Written

VALUES = (
    {"n": 1, "text": None},
    {"n": 2, "text": "größer 🚆"},
    {"n": 3, "items": [1, None, "\n"], "nested": {"a": {"b": 1.5}}},
    {"n": 4, 'odd "name"; DROP TABLE x --': True, "100%": 1, "what?": 2},
)
JSON_COLUMNS = ("items", "nested")


def written(columns: Iterable[str], rows: Iterable[tuple[Any, ...]], to_ms: Any = int) -> list[Written]:
    """Return rows as the values that were written. Null is not a value, but for `text`, which says so in the first value."""
    names = tuple(columns)
    found = []
    for row in rows:
        fields = dict(zip(names, row, strict=True))
        key, timestamp = fields.pop("__key", None), fields.pop("timestamp", None)
        value = {name: decoded(name, field) for name, field in fields.items() if field is not None}
        if value.get("n") == 1:
            value["text"] = None
        found.append(Written(value, key, None if timestamp is None else to_ms(timestamp)))
    return found


def decoded(name: str, field: Any) -> Any:
    """Return a field as it was before it was stored."""
    if name in JSON_COLUMNS and isinstance(field, str):
        return json.loads(field)
    return bool(field) if name.startswith("odd") else field


def batch_of(*values: Any, key: Any = b"key", partition: int = 0, start: int = 0) -> SinkBatch:
    """Return a batch of values from consecutive offsets."""
    batch = SinkBatch("orders", partition)
    for offset, value in enumerate(values, start):
        batch.append(value, key, 1_000 + offset, None, offset)
    return batch


def table_by_kind(item: SinkItem) -> str:
    """Return a table that the value names."""
    kinds: Mapping[str, Any] = item.value
    return str(kinds["kind"])
