"""Offsets of several partitions as one value, which programs keep, compare and send: a completion token.

```
{"v":1,"topics":{"orders":{"id":"kT3...","at":{"0":42,"1":7}}}}
```

By topic, `at` has the next offset of each partition, and `id` has Kafka's id of the topic if it is known: a topic that is
deleted and created again has another id. Any other text is refused, and so is a higher `v`, whose meaning is unknown here.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from streamrt.errors import ArgumentTypeError, ArgumentValueError, StaleTokenError, TokenVersionError
from streamrt.records import TopicPartition

__all__ = ["Offsets"]

_VERSION = 1
_HIGHEST = 2**63 - 1


class Offsets(Mapping[TopicPartition, int]):
    """The next offset of partitions: all records below it are meant. It does not change, and can be a key of a dict.

    A partition that is missing counts as one at offset 0.

    Args:
        at: the next offset by topic and partition.
        ids: Kafka's ids of these topics, by which a topic that was created again is noticed; others are left out.

    Raises:
        ArgumentTypeError: if a part has the wrong type.
        ArgumentValueError: if a name is empty, or a number is negative.

    Example:
        >>> one = Offsets({("orders", 0): 42, ("orders", 1): 7})
        >>> str(one)
        '{"v":1,"topics":{"orders":{"at":{"0":42,"1":7}}}}'
        >>> Offsets.parse(str(one)) == one
        True
        >>> one["orders", 1], one.partition_map("orders")
        (7, {0: 42, 1: 7})
        >>> other = Offsets({("orders", 0): 40, ("orders", 2): 1})
        >>> one | other
        Offsets({('orders', 0): 42, ('orders', 1): 7, ('orders', 2): 1})
        >>> one & other
        Offsets({('orders', 0): 40})
        >>> one.covers(other), (one | other).covers(other)
        (False, True)
    """

    def __init__(
        self,
        at: Mapping[tuple[str, int], int] | Mapping[TopicPartition, int],
        ids: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(at, Mapping):
            raise ArgumentTypeError(
                f"Offsets() needs a dict of offsets by topic and partition, got {type(at).__name__}"
            )
        named = ((_read_partition(key), number) for key, number in at.items())
        self._at = dict(sorted((each, _check_number(f"the offset of {each}", number)) for each, number in named))
        topics = {partition.topic for partition in self._at}
        self._ids = {topic: str(known) for topic, known in sorted((ids or {}).items()) if topic in topics and known}

    @classmethod
    def parse(cls, text: str) -> "Offsets":
        """Return the offsets in a text that `str()` has made.

        Args:
            text: the text.

        Raises:
            ArgumentTypeError: if it is not a string.
            ArgumentValueError: if it is another text.
            TokenVersionError: if a newer version of StreamRT made it.
        """
        if not isinstance(text, str):
            raise ArgumentTypeError(f"a token is a text that str(Offsets(...)) returns, got {type(text).__name__}")
        try:
            document = orjson.loads(text)
            version = document.pop("v")
            if type(version) is int and version > _VERSION:
                raise TokenVersionError(
                    f"a newer version of StreamRT made this token (format {version}, this one knows {_VERSION}): upgrade "
                    "StreamRT, or make the token with this version"
                )
            topics = document.pop("topics")
            if type(version) is not int or version < 1 or document:
                raise ValueError
            at: dict[tuple[str, int], int] = {}
            ids: dict[str, str] = {}
            for topic, entry in topics.items():
                at.update(((topic, _read_numeral(number)), offset) for number, offset in entry.pop("at").items())
                if "id" in entry:
                    ids[topic] = _check_text(entry.pop("id"))
                if entry:
                    raise ValueError
            return cls(at, ids)
        except TokenVersionError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError):
            shown = text if len(text) <= 80 else f"{text[:80]}..."
            raise ArgumentValueError(f"{shown!r} is not a token: give a text that str(Offsets(...)) has made") from None

    @property
    def ids(self) -> Mapping[str, str]:
        """Kafka's ids of the topics, as far as they are known."""
        return dict(self._ids)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics, sorted."""
        return tuple(dict.fromkeys(partition.topic for partition in self._at))

    def partition_map(self, topic: str) -> dict[int, int]:
        """Return the next offset by number of partition of one topic.

        Args:
            topic: name of the topic.
        """
        return {partition.partition: offset for partition, offset in self._at.items() if partition.topic == topic}

    def covers(self, other: "Offsets") -> bool:
        """Return whether all records that the other one means are also meant here.

        Args:
            other: the other offsets.

        Raises:
            StaleTokenError: if a topic was deleted and created again between the two.
        """
        self._common_ids(other)
        return all(self.get(partition, 0) >= offset for partition, offset in other.items())

    def __or__(self, other: "Offsets") -> "Offsets":
        """Return the higher offset of each partition."""
        ids = self._common_ids(other)
        return Offsets({each: max(self.get(each, 0), other.get(each, 0)) for each in {*self, *other}}, ids)

    def __and__(self, other: "Offsets") -> "Offsets":
        """Return the lower offset of each partition; those that one of the two does not have are left out."""
        ids = self._common_ids(other)
        return Offsets({each: min(offset, other[each]) for each, offset in self.items() if each in other}, ids)

    def _common_ids(self, other: "Offsets") -> dict[str, str]:
        if not isinstance(other, Offsets):
            raise ArgumentTypeError(f"offsets are compared with Offsets, got {type(other).__name__}")
        for topic, known in self._ids.items():
            if other._ids.get(topic, known) != known:
                raise StaleTokenError(
                    f"topic {topic!r} was deleted and created again between the two tokens, so their offsets mean different "
                    "records: drop the older token"
                )
        return self._ids | other._ids

    def __getitem__(self, key: tuple[str, int]) -> int:
        return self._at[TopicPartition(*key)]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Offsets):
            return (self._at, self._ids) == (other._at, other._ids)
        return self._at == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._at.items()))

    def __str__(self) -> str:
        topics: dict[str, Any] = {}
        for topic in self.topics:
            known = {"id": self._ids[topic]} if topic in self._ids else {}
            topics[topic] = {**known, "at": {str(each): at for each, at in self.partition_map(topic).items()}}
        return json.dumps({"v": _VERSION, "topics": topics}, separators=(",", ":"))

    def __repr__(self) -> str:
        ids = f", ids={self._ids!r}" if self._ids else ""
        at = {tuple(each): offset for each, offset in self._at.items()}
        return f"Offsets({at!r}{ids})"


def _read_partition(key: tuple[str, int]) -> TopicPartition:
    if not isinstance(key, tuple) or len(key) != 2 or not isinstance(key[0], str):
        raise ArgumentTypeError(f"a partition is a pair of topic and number, got {key!r}")
    if not key[0]:
        raise ArgumentValueError(f"the topic of {key!r} has no name")
    return TopicPartition(key[0], _check_number(f"the partition of {key[0]}", key[1]))


def _check_number(what: str, number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise ArgumentTypeError(f"{what} must be an int, got {number!r}")
    if not 0 <= number <= _HIGHEST:
        raise ArgumentValueError(f"{what} must be 0 or more, and fit into 64 bits, got {number}")
    return number


def _read_numeral(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and str(int(text)) == text):
        raise ValueError
    return int(text)


def _check_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value
