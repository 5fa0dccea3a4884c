"""The contents of a changelog, and their conversion back to store changes.

A changelog record has exactly the key and the value bytes of the store; a null value deletes. Each commit adds one
**position record** under a separate key, `POSITION_KEY`. Its value is JSON with a version: `{"v":1,"input_offset":...,
"topic_id":...,"partitions":...,"stream_time":...}`. Version 2 adds `"inputs":{...}`, the offset of each topic, if the
state has several input topics. Version 3 adds `"observed":...`, the highest event time of the records that advance
watermarks (see `identity.py`). A changelog thus records which input its state contains, even if the local files and the
offsets of the group are lost.

With at-least-once, each record has a header, `e`: the **epoch** of its writer. An epoch is ten bytes, compared from the
left: six for the number of the claim of the input partition, four for the processing attempt. If a record has a lower
epoch than a record before it in the log, its writer had lost the partition, and the record is ignored. With
exactly-once, such a writer is fenced, and records have no header.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamrt.common.untrusted import LOWEST, malformed_as, read_field, read_field_or_none
from streamrt.errors import ChangelogError
from streamrt.state.expiry import EVENT_INDEX, WALL_INDEX, has_index, index_bound, overwritten_index
from streamrt.state.identity import Stamp, decode_versioned, encode_with_inputs
from streamrt.state.layout import (
    FIRST_LOCAL_SPACE,
    LATEST_EXPIRY,
    POSITION_SPACE,
    TIMER_SPACE,
    index_key_of,
    timer_bound_key,
    timer_index_of,
)
from streamrt.state.store import StorePartition

__all__ = [
    "POSITION_KEY",
    "Position",
    "RestoredChanges",
    "epoch_of",
    "is_position",
    "restore_changes",
]

POSITION_KEY: Final = bytes((POSITION_SPACE,)) + b"position"
"""Key of the position record."""

_VERSION = 3
_NOTHING_KNOWN = bytes(8)
_SHORTEST_EXPIRING = 9
"""Bytes of flag and expiry."""
_SHOWN = 80
_SHORTEST_TIMER = 12
"""Bytes of space, the shortest prefix, domain and time."""


def epoch_of(claim: int, attempt: int) -> bytes:
    r"""Return the epoch of a writer.

    Args:
        claim: number of the claim of the input partition.
        attempt: number of the processing attempt under this claim.

    Example:
        >>> epoch_of(1, 2)
        b'\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02'
        >>> epoch_of(1, 300) < epoch_of(2, 0)
        True
    """
    return claim.to_bytes(6, "big") + attempt.to_bytes(4, "big")


def is_position(key: bytes | None) -> bool:
    r"""Return whether a changelog record with this key is a position record.

    Example:
        >>> is_position(POSITION_KEY), is_position(b"\x01...")
        (True, False)
    """
    return key == POSITION_KEY


@dataclass(frozen=True)
class Position:
    """The input progress of the state in a changelog.

    Attributes:
        input_offset: the state contains all input records below it. With several source topics: the sum of their
            offsets.
        topic_id: Kafka's id of the source topic; with several, their ids, joined by commas; None in the test driver.
        partitions: partition count of the source topic.
        stream_time: highest event time seen, in milliseconds; None before the first record.
        inputs: offset of each source topic, if there are several.
        observed: highest event time of the records that advance watermarks, in milliseconds; None if there are none.

    Example:
        >>> position = Position(input_offset=12, topic_id=None, partitions=4, stream_time=1_000)
        >>> Position.decode(position.encode()) == position
        True
    """

    input_offset: int
    topic_id: str | None
    partitions: int
    stream_time: int | None
    inputs: Mapping[str, int] | None = None
    observed: int | None = None

    @classmethod
    def of(cls, stamp: Stamp) -> "Position | None":
        """Return the position that corresponds to the stamp of a store partition.

        For a partly restored partition, this is the last restored position, or None if there is none.
        """
        if stamp.input_offset is None:
            return None if stamp.restored is None else cls.decode(stamp.restored)
        own = stamp.identity
        return cls(stamp.input_offset, own.topic_id, own.partitions, stamp.stream_time, stamp.inputs, stamp.observed)

    def encode(self) -> bytes:
        """Return the value of the position record."""
        fields = dict(vars(self))
        return encode_with_inputs(fields, fields.pop("inputs"), fields.pop("observed"))

    @classmethod
    def decode(cls, data: bytes) -> "Position":
        """Read what `encode` wrote.

        Raises:
            StoreVersionError: if a newer version of StreamRT wrote it.
            ChangelogError: if it is not a position.
        """
        fields = decode_versioned(data, _VERSION, "the position record of a changelog", ChangelogError)
        with malformed_as(lambda wrong: ChangelogError(f"the position record of a changelog is damaged: it {wrong}")):
            inputs = read_field_or_none(fields, "inputs", dict)
            return cls(
                read_field(fields, "input_offset", int),
                read_field_or_none(fields, "topic_id", str),
                read_field(fields, "partitions", int),
                read_field_or_none(fields, "stream_time", int, LOWEST),
                None if inputs is None else {topic: read_field(inputs, topic, int) for topic in inputs},
                read_field_or_none(fields, "observed", int, LOWEST),
            )


class RestoredChanges(NamedTuple):
    """Store changes decoded from a batch of changelog records.

    Attributes:
        changes: the argument for `StorePartition.write`.
        position: the last position among the records; None if there is none.
    """

    changes: list[tuple[bytes, bytes | None]]
    position: Position | None


def restore_changes(
    records: Iterable[tuple[bytes | None, bytes | None]], partition: StorePartition | None = None
) -> RestoredChanges:
    r"""Convert changelog records to store changes, including those of the indexes.

    Args:
        records: keys and values of consecutive changelog records, in order.
        partition: the target of the changes. If given, the index entries of overwritten values are deleted at once;
            otherwise they remain, without effect, until they expire. Required for a store with deadlines that is not
            empty.

    Returns:
        The changes, one for each key, and the last position.

    Raises:
        ChangelogError: if a record cannot belong to a changelog.
        StoreVersionError: if a newer version of StreamRT wrote the position.

    Example:
        >>> position = Position(3, None, 1, 1_000)
        >>> restore_changes([(b"\x01a", b"\x00one"), (b"\x01a", b"\x00two"), (POSITION_KEY, position.encode())])
        RestoredChanges(changes=[(b'\x01a', b'\x00two')], position=Position(input_offset=3, ...))
    """
    last = dict(records)
    position = None
    if POSITION_KEY in last:
        data = last.pop(POSITION_KEY)
        if data is None:
            raise ChangelogError(
                "the position record of a changelog was deleted, so the input offset of its state is unknown; start "
                "over with another consumer_group"
            )
        position = Position.decode(data)
    changes: list[tuple[bytes, bytes | None]] = []
    index: list[tuple[bytes, bytes | None]] = []
    # The earliest new expiry of each index, by the first byte of its keys.
    first: dict[int, int] = {}
    for change in last.items():
        key, value = change
        if not key or key[0] >= FIRST_LOCAL_SPACE:
            raise _make_foreign_error(key)
        changes.append(change)  # type: ignore[arg-type]
        # Most values have flag 0.
        if value and value[0] and (index_key := index_key_of(key, value)) is not None:
            if len(value) < _SHORTEST_EXPIRING:
                raise _make_foreign_error(key)
            index.append((index_key, b""))
            expiry = int.from_bytes(value[1:9], "big")
            first[index_key[0]] = min(first.get(index_key[0], LATEST_EXPIRY + 1), expiry)
    timers = _timer_index(changes, partition)
    exists = False
    for kind in (EVENT_INDEX, WALL_INDEX):
        known = None if partition is None else index_bound(partition, kind)
        earliest = first.get(kind.space, LATEST_EXPIRY + 1)
        if known is not None:
            exists = True
            if earliest < known:
                index.append((kind.bound_key, earliest.to_bytes(8, "big")))
        elif partition is not None and changes and has_index(partition, kind):
            exists = True
        elif kind.space in first and (partition is not None or not kind.former):
            # Later look-ups need no search for entries across those that the restore deletes.
            index.append((kind.bound_key, _NOTHING_KNOWN))
    if partition is None or not exists or not changes:
        return RestoredChanges(changes + index + timers, position)
    # Deletions first, so that a value that is rewritten with the same expiry keeps its entry.
    overwritten = overwritten_index(partition, [key for key, _ in changes])
    return RestoredChanges(changes + overwritten + index + timers, position)


def _make_foreign_error(key: bytes | None) -> ChangelogError:
    shown = "no key" if key is None else f"the key {key[:_SHOWN]!r}"
    return ChangelogError(
        f"a changelog has a record with {shown}, which StreamRT never writes; another application produces to this topic: "
        "start over with another consumer_group"
    )


def _timer_index(
    changes: list[tuple[bytes, bytes | None]], partition: StorePartition | None
) -> list[tuple[bytes, bytes | None]]:
    """Return the changes of the index of timers, and of its bounds."""
    found: list[tuple[bytes, bytes | None]] = []
    earliest: dict[int, bytes] = {}
    for key, value in changes:
        if key[0] == TIMER_SPACE:
            if len(key) < _SHORTEST_TIMER or key[-9] not in (0, 1):
                raise _make_foreign_error(key)
            found.append((timer_index_of(key), None if value is None else b""))
            domain, time = key[-9], key[-8:]
            if value is not None and time < earliest.get(domain, b"\xff" * 9):
                earliest[domain] = time
    for domain, time in earliest.items():
        bound = None if partition is None else partition.get(timer_bound_key(domain))
        if bound is not None and time < bound:
            found.append((timer_bound_key(domain), time))
    return found
