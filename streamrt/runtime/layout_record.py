"""The layout of a consumer group: what its state belongs to, and where its inputs are, in one topic.

Kafka forgets the committed offsets of a group that had no members for a week (`offsets.retention.minutes`), and their
metadata with them. Changelogs keep the positions of the inputs of their stores, but nothing else says where the inputs
of tasks without a store are, such as those above a `group_by`. A group with changelogs therefore has the compacted topic

```
layout__<group>    partition 0: the layout, under the key `layout`
                   partition 1: the position of each input partition, under the key `["<topic>",<partition>]`
```

Both values are JSON with a version:

```
{"v":1,"group":"shop",
 "inputs":{"orders":{"id":"x1","partitions":2}},                 Kafka's id and number of partitions
 "stores":[{"scope":"orders","store":"default","changelog":"changelog__shop--orders--default","id":"x2","partitions":2,
            "folds":["..."]}],                                   what the operators keep in the store
 "queries":{"totals":"5e0f..."}}                                 digests of the plans of queries in SQL
{"v":1,"id":"x1","offset":42}                                    the next record to process, and the id of its topic
```

Each start reads the layout, compares it, and writes its own. Tasks without a store write the positions of their inputs
with each commit: with exactly-once, in its transaction; with at-least-once, when all outputs are durable. So a position is
never above what was processed. With at-least-once it may be below it after a crash, and then records repeat.

A group without the topic was written by an earlier version; its next start creates the topic.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamrt.errors import ChangelogError, StoreVersionError
from streamrt.records import Headers, TopicPartition

__all__ = ["LAYOUT_KEY", "GroupLayout", "InputPositions", "LaidInput", "LaidStore", "decode_position"]

LAYOUT_KEY = b"layout"
LAYOUT_PARTITION, POSITIONS_PARTITION = 0, 1
LAYOUT_PARTITIONS = 2
Produce = Callable[[str, bytes | None, bytes | None, int | None, Headers | None, int], None]
"""Function of topic, value, key, timestamp (ms), headers and partition of a record; produces it."""
_VERSION = 1
_SHOWN = 40


@dataclass(frozen=True)
class LaidInput:
    """An input topic or a repartition topic of a group.

    Attributes:
        id: Kafka's id of it; None if the brokers have none.
        partitions: number of its partitions.
    """

    id: str | None
    partitions: int


@dataclass(frozen=True)
class LaidStore:
    """A store of a group.

    Attributes:
        changelog: the name of its changelog.
        id: Kafka's id of the changelog.
        partitions: number of partitions of the store.
        folds: what the operators keep in it, one text for each operator; None if it is not known.
    """

    changelog: str
    id: str | None
    partitions: int
    folds: tuple[str, ...] | None = None


@dataclass(frozen=True)
class GroupLayout:
    """The inputs and stores that the state of a group belongs to.

    Attributes:
        group: the consumer group.
        inputs: input topics and repartition topics, by name.
        stores: the stores with a changelog, by scope and name.
        queries: digests of the plans of queries in SQL, by name.

    Example:
        >>> store = LaidStore("changelog__shop--orders--default", "x2", 2, ("apply",))
        >>> layout = GroupLayout("shop", {"orders": LaidInput("x1", 2)}, {("orders", "default"): store})
        >>> GroupLayout.decode(layout.encode(), "layout__shop") == layout
        True
    """

    group: str
    inputs: Mapping[str, LaidInput] = field(default_factory=dict)
    stores: Mapping[tuple[str, str], LaidStore] = field(default_factory=dict)
    queries: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the value of the record."""
        document = {
            "v": _VERSION,
            "group": self.group,
            "inputs": {name: {"id": each.id, "partitions": each.partitions} for name, each in self.inputs.items()},
            "stores": [
                {
                    "scope": scope,
                    "store": store,
                    "changelog": each.changelog,
                    "id": each.id,
                    "partitions": each.partitions,
                    **({} if each.folds is None else {"folds": list(each.folds)}),
                }
                for (scope, store), each in self.stores.items()
            ],
            **({"queries": dict(self.queries)} if self.queries else {}),
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, topic: str) -> "GroupLayout":
        """Read what `encode` wrote.

        Args:
            data: the value of the record.
            topic: the topic that it is in, for errors.

        Raises:
            StoreVersionError: if a newer version of StreamRT wrote it.
            ChangelogError: if it is not a layout.
        """
        document = _read_document(data, topic)
        inputs, stores = document.get("inputs"), document.get("stores")
        try:
            return cls(
                _of(str, document.get("group")),
                {
                    name: LaidInput(_read_id(each.get("id")), _read_count(each.get("partitions")))
                    for name, each in _of(dict, inputs).items()
                },
                {
                    (_of(str, each.get("scope")), _of(str, each.get("store"))): LaidStore(
                        _of(str, each.get("changelog")),
                        _read_id(each.get("id")),
                        _read_count(each.get("partitions")),
                        None
                        if each.get("folds") is None
                        else tuple(_of(str, text) for text in _of(list, each["folds"])),
                    )
                    for each in _of(list, stores)
                },
                {name: _of(str, digest) for name, digest in _of(dict, document.get("queries", {})).items()},
            )
        except (TypeError, ValueError, AttributeError):
            raise _make_unreadable_error(data, topic) from None


@dataclass(frozen=True)
class InputPositions:
    """Writes the positions of the inputs of tasks without a store.

    Attributes:
        topic: the topic of the layout.
        ids: Kafka's ids of these inputs, by name.

    Example:
        >>> positions = InputPositions("layout__shop", {"orders": "x1"})
        >>> list(positions.records({TopicPartition("orders", 0): 42, TopicPartition("other", 0): 7}))
        [(b'["orders",0]', b'{"v":1,"id":"x1","offset":42}')]
    """

    topic: str
    ids: Mapping[str, str | None]

    def records(self, offsets: Mapping[TopicPartition, int]) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of the record of each of these inputs; other ones are left out."""
        return (
            (position_key(each), _dump_document({"v": _VERSION, "id": self.ids[each.topic], "offset": offset}))
            for each, offset in offsets.items()
            if each.topic in self.ids
        )

    def produce(self, produce: Produce, offsets: Mapping[TopicPartition, int], now: int) -> None:
        """Write the positions of these inputs.

        Args:
            produce: the method of a writer.
            offsets: the next offset of input partitions.
            now: milliseconds since the Unix epoch.
        """
        for key, value in self.records(offsets):
            produce(self.topic, value, key, now, None, POSITIONS_PARTITION)


def position_key(partition: TopicPartition) -> bytes:
    """Return the key of the position of an input partition."""
    return _dump_document([partition.topic, partition.partition])


def decode_position(data: bytes, topic: str) -> tuple[str | None, int]:
    """Return the id of the input topic and the offset.

    Args:
        data: the value of the record.
        topic: the topic that it is in, for errors.

    Raises:
        StoreVersionError: if a newer version of StreamRT wrote it.
        ChangelogError: if it is not a position.

    Example:
        >>> decode_position(b'{"v":1,"id":"x1","offset":42}', "layout__shop")
        ('x1', 42)
    """
    document = _read_document(data, topic)
    try:
        return _read_id(document.get("id")), _read_count(document.get("offset"), least=0)
    except (TypeError, ValueError):
        raise _make_unreadable_error(data, topic) from None


def merged_layout(former: GroupLayout | None, now: GroupLayout, gone: Collection[tuple[str, str]] = ()) -> GroupLayout:
    """Return the layout of a group whose last version had other inputs and stores: a later version may have them again.

    Args:
        former: the layout before; None if there was none.
        now: that of this version.
        gone: stores that do not exist any more.
    """
    if former is None:
        return now
    kept = {name: each for name, each in former.stores.items() if name not in gone}
    return GroupLayout(
        now.group, {**former.inputs, **now.inputs}, {**kept, **now.stores}, {**former.queries, **now.queries}
    )


def _read_document(data: bytes, topic: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise _make_unreadable_error(data, topic) from None
    version = document.get("v") if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        raise _make_unreadable_error(data, topic)
    if version > _VERSION:
        raise StoreVersionError(
            f"the topic {topic} has a record of format {version}, and this StreamRT supports formats up to {_VERSION}: "
            "upgrade StreamRT"
        )
    return dict(document)


def _make_unreadable_error(data: bytes, topic: str) -> ChangelogError:
    return ChangelogError(
        f"the topic {topic}, which keeps the positions of a consumer group, has a record that StreamRT did not write: "
        f"{data[:_SHOWN]!r}; find its producer, stop all instances, and delete the topic: the next start makes it again from "
        "the committed offsets"
    )


def _of(kind: type[Any], value: object) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def _read_id(value: object) -> str | None:
    return None if value is None else str(_of(str, value))


def _read_count(value: object, least: int = 1) -> int:
    if type(value) is not int or not least <= value < 1 << 63:
        raise ValueError(f"{value!r} is not a number in range")
    return value


def _dump_document(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
