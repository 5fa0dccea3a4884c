"""Records that are hard to get right, and an application that sends all of them through every kind of topic.

The test driver, resident tasks and micro-batches must agree on what comes out, with one partition and with several.
"""

import datetime
import decimal
import enum
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from streamrt import Application, Topic
from streamrt.kafka import TopicConfig

__all__ = ["HEADERS", "KEYS", "TIMES", "VALUES", "build", "records"]


class Color(enum.Enum):
    RED = "red"


NAN = float("nan")
VALUES: dict[str, Any] = {
    "none": None,
    "empty text": "",
    "empty dict": {},
    "nan": {"x": NAN},
    "infinity": {"x": float("-inf")},
    "minus zero": {"x": -0.0},
    "tuple": {"x": (1, (2,))},
    "uuid": {"x": uuid.UUID(int=7)},
    "enum": {"x": Color.RED},
    "bytes": {"x": b"\xff\x00"},
    "empty bytes": {"x": b""},
    "datetime": {"x": datetime.datetime(2024, 1, 1, 12)},
    "aware datetime": {"x": datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)},
    "date": {"x": datetime.date(2024, 1, 1)},
    "decimal": {"x": decimal.Decimal("1.10")},
    "set": {"x": {1}},
    "int keys": {1: 2},
    "none keys": {None: 2},
    "64 bits": {"x": 2**64 - 1, "y": -(2**63)},
    "65 bits": {"x": 2**64},
    "lone surrogate": {"x": "\ud800"},
    "surrogate key": {"\udfff": 1},
    "null character": {"x\0": "a\0b"},
    "nested": {"x": [{"y": [None, True, 1.0, 1]}]},
    "plain text": "text",
    "number": 1.0,
    "too large": {"x": "a" * 2_000_000},
    "largest": "a" * (1_000_000 - 36 - 2 - len('"value:largest"')),
    "one byte more": "a" * (1_000_000 - 36 - 1 - len('"value:one byte more"')),
}
"""Values by name."""

KEYS: dict[str, Any] = {
    "none": None,
    "text": "k",
    "empty text": "",
    "nan": NAN,
    "tuple": (1, 2),
    "uuid": uuid.UUID(int=7),
    "bytes": b"\xff",
    "datetime": datetime.datetime(2024, 1, 1),
    "decimal": decimal.Decimal(1),
    "int": 7,
    "65 bits": 2**64,
    "float": 1.0,
    "minus zero": -0.0,
    "true": True,
    "dict": {"b": 1, "a": [2]},
    "int keys": {1: 2},
    "lone surrogate": "\ud800",
    "null character": "a\0b",
}
"""Keys by name."""

HEADERS: dict[str, Any] = {
    "none": None,
    "empty": [],
    "text": [("a", "text"), ("b", "\u00e9"), ("c", "")],
    "bytes": [("a", b"\xff\x00"), ("b", b"")],
    "null": [("a", None)],
    "twice": [("a", b"1"), ("a", "2"), ("a", None)],
    "name": [("\u00e9", b"1"), ("", b"2")],
    "surrogate": [("a", "\ud800")],
    "surrogate name": [("\ud800", b"1")],
    "null character": [("a\0b", b"1")],
    "tuple": (("a", b"1"),),
    "lists": [["a", "1"]],
}
"""Headers by name."""

TIMES: dict[str, Any] = {
    "0": 0,
    "1": 1,
    "now": 1_700_000_000_000,
    "negative": -1,
    "2^53": 2**53,
    "latest": 9_223_372_036_854_775,
    "too late": 9_223_372_036_854_776,
    "2^63": 2**63,
    "text": "1",
    "float": 1.0,
    "true": True,
}
"""Timestamps by name."""

KINDS: dict[str, dict[str, Any]] = {"value": VALUES, "key": KEYS, "headers": HEADERS, "time": TIMES}


def records() -> list[bytes]:
    """Return the values of the input records: each names one record of the corpus."""
    return [f"{kind}:{name}".encode() for kind, corpus in KINDS.items() for name in corpus]


def _value(name: str) -> Any:
    kind, _, item = name.partition(":")
    return {"name": name} if kind != "value" else VALUES[item]


def _key(name: str) -> Any:
    kind, _, item = name.partition(":")
    # Keys that tell the values apart behind the topic.
    return KEYS[item] if kind == "key" else name


def _headers(name: str) -> Any:
    kind, _, item = name.partition(":")
    return HEADERS[item] if kind == "headers" else None


def _time(timestamp: int, name: str) -> Any:
    kind, _, item = name.partition(":")
    return TIMES[item] if kind == "time" else timestamp


class _Keyed:
    """Gives a value the key of its record, which is not in the value; each task has its own."""

    def __init__(self) -> None:
        self.name = ""

    def remember(self, name: str) -> str:
        self.name = name
        return name

    def key(self, value: Any) -> Any:
        return _key(self.name)


def described(value: Any, key: Any, timestamp: int, headers: Any) -> dict[str, Any]:
    """Return all of a record as text that tells types apart; long ones by their length."""
    shown = [repr(each) for each in (value, key, timestamp, headers)]
    return {"seen": [each if len(each) < 100 else f"{each[:10]} {len(each)}" for each in shown]}


def build(app: Application, prefix: str, partitions: int, out: Topic) -> Topic:
    """Add an application that sends the corpus through a group_by, and tells in a topic what comes out.

    Args:
        app: the application; its callbacks skip what fails.
        prefix: begins the names of topics.
        partitions: how many partitions the input has.
        out: where what comes out is described.
    """
    # Far times need topics that take them.
    config = TopicConfig(partitions, 1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    source = app.topic(f"{prefix}-in", value_deserializer="str", value_serializer="bytes", config=config)
    aside = app.topic(f"{prefix}-aside", key_serializer="json", config=config)
    names = app.dataframe(source)
    for name, exchange in _EXCHANGES.items():
        keyed = _Keyed()
        frame = names.apply(keyed.remember)
        frame = frame.set_timestamp(lambda value, key, timestamp, headers: _time(timestamp, value))
        frame = frame.set_headers(lambda value, key, timestamp, headers: _headers(value)).apply(_value)
        frame.to_topic(aside, key=keyed.key)
        behind = exchange(frame, keyed.key, f"{prefix}-{name}".replace(" ", "-"))
        told = behind.apply(partial(_told, f"{prefix} {name}"), metadata=True)
        told.set_timestamp(lambda *_: 5).set_headers(lambda *_: None).to_topic(out, key=lambda value: value["from"])
    return source


def _told(name: str, value: Any, key: Any, timestamp: int, headers: Any) -> dict[str, Any]:
    return {"from": name, **described(value, key, timestamp, headers)}


_EXCHANGES: dict[str, Callable[[Any, Callable[[Any], Any], str], Any]] = {
    "group_by": lambda frame, key, name: frame.group_by(key, name=name),
    "twice": lambda frame, key, name: frame.group_by(key, name=name).group_by(lambda value: "one", name=f"{name}-2"),
}
