"""What is in a changelog, and how it becomes changes of a store again.

Records of a changelog have exactly the keys and the value bytes of the store; a null value deletes. Each commit adds one
**position record** under a key of its own, `POSITION_KEY`. Its value is JSON with a version: `{"v":1,"input_offset":...,
"topic_id":...,"partitions":...,"stream_time":...}`, and of version 2 with `"inputs":{...}`, the offset of each topic, where
state is made from several (see `identity.py`). So a changelog tells which input records its state contains, also when
the local files and the offsets of the group are gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamrt.errors import ChangelogError
from streamrt.state.identity import decode_versioned, encode_with_inputs
from streamrt.state.layout import (
    EXPIRY_SPACE,
    FIRST_KEY,
    FIRST_LOCAL_SPACE,
    HEAD_SPACE,
    LATEST_EXPIRY,
    POSITION_SPACE,
    expiry_key,
    split_expiry_key,
)
from streamrt.state.store import StorePartition

__all__ = ["POSITION_KEY", "Position", "RestoredChanges", "is_position", "restore_changes"]

POSITION_KEY: Final = bytes((POSITION_SPACE,)) + b"position"
"""Key of the position record."""

_VERSION = 2
_EXPIRING_FLAG = 1
_EXPIRY_START = bytes((EXPIRY_SPACE,))
_EXPIRY_END = bytes((EXPIRY_SPACE + 1,))


def is_position(key: bytes | None) -> bool:
    r"""Tell whether a changelog record with this key is a position record.

    Example:
        >>> is_position(POSITION_KEY), is_position(b"\x01...")
        (True, False)
    """
    return key == POSITION_KEY


@dataclass(frozen=True)
class Position:
    """What the state in a changelog contains.

    Attributes:
        input_offset: all input records below it are in the state. Of several source topics, it is the sum of their offsets.
        topic_id: Kafka's id of the source topic; of several, their ids, joined by commas; None in the test driver.
        partitions: partition count of the source topic.
        stream_time: highest event time seen, in milliseconds; None before the first record.
        inputs: offset of each source topic, where there are several.

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

    def encode(self) -> bytes:
        """Return the value of the position record."""
        fields = dict(vars(self))
        return encode_with_inputs(fields, fields.pop("inputs"))

    @classmethod
    def decode(cls, data: bytes) -> "Position":
        """Read what `encode` wrote.

        Raises:
            StoreVersionError: if a newer version of StreamRT wrote it.
            ChangelogError: if it is no position.
        """
        fields = decode_versioned(data, _VERSION, "the position record of a changelog", ChangelogError)
        try:
            return cls(**fields)
        except TypeError as error:
            raise ChangelogError(f"the position record of a changelog is incomplete: {error}") from None


class RestoredChanges(NamedTuple):
    """What a batch of changelog records means.

    Attributes:
        changes: what to give to `StorePartition.write`.
        position: the last position among the records; None if there is none.
    """

    changes: list[tuple[bytes, bytes | None]]
    position: Position | None


def restore_changes(
    records: Iterable[tuple[bytes | None, bytes | None]], partition: StorePartition | None = None
) -> RestoredChanges:
    r"""Turn changelog records into changes of a store, those of its expiry index included.

    Args:
        records: keys and values of consecutive changelog records, in their order.
        partition: where the changes will be written. With it, the index entries of values that are overwritten are deleted
            at once; without it, they stay until their time has come, and have no effect. A store with deadlines that is not
            empty needs it.

    Returns:
        The changes, one for each key, and the last position.

    Raises:
        ChangelogError: if a record cannot be one of a changelog.
        StoreVersionError: if the position was written by a newer version of StreamRT.

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
                "the position record of a changelog was deleted: nothing tells what its state contains; start over with "
                "another consumer_group"
            )
        position = Position.decode(data)
    changes: list[tuple[bytes, bytes | None]] = []
    index: list[tuple[bytes, bytes | None]] = []
    first = LATEST_EXPIRY + 1
    for change in last.items():
        key, value = change
        if not key or key[0] >= FIRST_LOCAL_SPACE:
            raise ChangelogError(
                f"a changelog has a record with the key {key!r}, which StreamRT never writes: another application "
                "produces to this topic; start over with another consumer_group"
            )
        changes.append(change)  # type: ignore[arg-type]
        if value and value[0] == _EXPIRING_FLAG:
            expiry = int.from_bytes(value[1:9], "big")
            index.append((expiry_key(expiry, key), b""))
            if key[0] == HEAD_SPACE:
                first = min(first, expiry)
    if first < index_start(partition):
        index.append((FIRST_KEY, first.to_bytes(8, "big")))
    if partition is not None and changes and _has_index(partition):
        # Deletions first: a value that was written again with the same expiry keeps its entry.
        return RestoredChanges(changes + overwritten_index(partition, [key for key, _ in changes]) + index, position)
    return RestoredChanges(changes + index, position)


def _has_index(partition: StorePartition) -> bool:
    return next(partition.scan(expiry_key(index_start(partition), b""), _EXPIRY_END), None) is not None


def index_start(partition: StorePartition | None) -> int:
    """Return an expiry that no entry of the index is before; 0 if nothing is known."""
    data = None if partition is None else partition.get(FIRST_KEY)
    return 0 if data is None else int.from_bytes(data, "big")


def overwritten_index(partition: StorePartition, keys: list[bytes]) -> list[tuple[bytes, bytes | None]]:
    """Return the deletions of the index entries that the stored values of some data keys have."""
    return [
        (expiry_key(int.from_bytes(value[1:9], "big"), key), None)
        for key, value in zip(keys, partition.get_many(keys), strict=True)
        if value and value[0] == _EXPIRING_FLAG
    ]


def expired(partition: StorePartition, bound: bytes) -> Iterable[tuple[int, bytes]]:
    """Return expiry and data key of the index entries before a bound, the oldest first."""
    return (split_expiry_key(key) for key, _ in partition.scan(_EXPIRY_START, bound))
