"""The answers to state queries in JSON.

Values are shown as JSON. What has no JSON form is an object with one name that begins with `$`: bytes as
`{"$base64": "..."}`, and numbers beyond 64 bits and objects that `RocksDBOptions.loads` has made as `{"$text": "..."}`.
"""

import base64
from collections.abc import Mapping
from typing import Any

from streamrt.queries.stored_state import StateAnswer, StateEntry
from streamrt.records import TopicPartition

__all__ = ["answer_of_dict", "dict_of_answer", "shown_text", "shown_value"]


def dict_of_answer(answer: StateAnswer) -> dict[str, Any]:
    """Return an answer for JSON."""
    return {
        "store": answer.store,
        "topic": answer.topic,
        "partition": answer.partition,
        "entries": [_of_entry(entry) for entry in answer.entries],
        "position": [
            {"topic": each.topic, "partition": each.partition, "offset": offset}
            for each, offset in sorted(answer.position.items())
        ],
        "cursor": answer.cursor,
        "member": answer.member,
    }


def _of_entry(entry: StateEntry) -> dict[str, Any]:
    found = {"key": shown_value(entry.key), "value": shown_value(entry.value)}
    if entry.start_ms is None:
        found["state_key"] = shown_value(entry.state_key)
    else:
        found.update(start_ms=entry.start_ms, end_ms=entry.end_ms)
    return found


def shown_value(value: Any) -> Any:
    """Return a value for JSON.

    Example:
        >>> shown_value([b"ab", 1.5])
        [{'$base64': 'YWI='}, 1.5]
    """
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else shown_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else str(name): shown_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [shown_value(each) for each in value]
    return shown_text(value)


def shown_text(value: Any) -> dict[str, str]:
    """Return what stands for an object without a JSON form."""
    return {"$text": str(value)}


def answer_of_dict(document: Mapping[str, Any]) -> StateAnswer:
    """Return an answer from JSON; bytes are bytes again."""
    return StateAnswer(
        document["store"],
        document["topic"],
        document["partition"],
        tuple(
            StateEntry(
                _show_value(each["key"]),
                _show_value(each.get("state_key")),
                _show_value(each["value"]),
                each.get("start_ms"),
                each.get("end_ms"),
            )
            for each in document["entries"]
        ),
        {TopicPartition(each["topic"], each["partition"]): each["offset"] for each in document["position"]},
        document["cursor"],
        document["member"],
    )


def _show_value(shown: Any) -> Any:
    if isinstance(shown, dict):
        if shown.keys() == {"$base64"}:
            return base64.b64decode(shown["$base64"])
        return {name: _show_value(each) for name, each in shown.items()}
    return [_show_value(each) for each in shown] if isinstance(shown, list) else shown
