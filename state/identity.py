"""Whose data a store partition holds, and up to where.

Stamps are stored next to the data, so they outlive the program that wrote them. Their format is JSON with a version:
`{"v":1,"group":...,"topic":...,"partition":...,"store":...,"topic_id":...,"changelog_id":...,"partitions":...,
"input_offset":...,"changelog_offset":...,"stream_time":...,"written_at":...}`. A newer version is refused, since its
meaning is unknown; so are bytes that are no stamp at all.

State that is made from several topics has version 2: `topic` holds their names, joined by `--`, `topic_id` their ids, joined
by commas, `input_offset` is the sum of the offsets of all, and `"inputs":{...}` tells the offset of each topic.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from streamrt.errors import StateError, StoreCorruptedError, StoreVersionError

__all__ = ["Stamp", "StoreIdentity", "decode_versioned", "encode_versioned", "encode_with_inputs"]

_VERSION = 2


def encode_versioned(version: int, fields: dict[str, Any]) -> bytes:
    """Return JSON that begins with its version."""
    return orjson.dumps({"v": version, **fields})


def encode_with_inputs(fields: dict[str, Any], inputs: Mapping[str, int] | None) -> bytes:
    """Return what state of one topic is described by in version 1, and state of several, with their offsets, in version 2."""
    return encode_versioned(1, fields) if inputs is None else encode_versioned(2, {**fields, "inputs": dict(inputs)})


def decode_versioned(data: bytes, newest: int, what: str, error: type[StateError]) -> dict[str, Any]:
    """Read what `encode_versioned` wrote.

    Args:
        data: the bytes.
        newest: the newest version that this program knows.
        what: what the bytes are, for errors.
        error: raised if they are something else.

    Raises:
        StoreVersionError: if the version is newer.
    """
    try:
        fields = orjson.loads(data)
        version = fields.pop("v")
        known = type(version) is int and version >= 1
    except (ValueError, TypeError, AttributeError, KeyError):
        known = False
    if not known:
        raise error(f"{what} is not readable: {data[:40]!r}")
    if version > newest:
        raise StoreVersionError(
            f"{what} has format version {version}, but this StreamRT knows versions up to {newest}: state was written by a "
            "newer version; upgrade StreamRT"
        )
    return dict(fields)


@dataclass(frozen=True)
class StoreIdentity:
    """Whose data a store partition holds.

    Attributes:
        group: consumer group of the application.
        topic: source topic, or repartition topic; of several, their sorted names, joined by `--`.
        partition: number of the partition in that topic.
        store: name of the store.
        topic_id: Kafka's id of the source topic; of several, their ids, joined by commas; None in the test driver.
        changelog_id: Kafka's id of the changelog topic; None without changelog.
        partitions: partition count of the source topic.
    """

    group: str
    topic: str
    partition: int
    store: str
    topic_id: str | None
    changelog_id: str | None
    partitions: int


@dataclass(frozen=True)
class Stamp:
    """Where a store partition stands. It is written together with the data, all or nothing.

    Attributes:
        identity: whose data it is.
        input_offset: all input records below it are in the data; None while the data is restored part-way only. Of several
            source topics, it is the sum of their offsets.
        changelog_offset: all changelog records below it are in the data; None without changelog.
        stream_time: highest event time seen, in milliseconds; None before the first record.
        written_at: wall clock, in milliseconds, at which the last commit was made, or the last replay began.
        inputs: offset of each source topic, where there are several and `input_offset` is not None.

    Example:
        >>> identity = StoreIdentity("shop", "orders", 0, "default", None, None, 4)
        >>> stamp = Stamp(identity, input_offset=12, changelog_offset=None, stream_time=1_000, written_at=2_000)
        >>> Stamp.decode(stamp.encode()) == stamp
        True
    """

    identity: StoreIdentity
    input_offset: int | None
    changelog_offset: int | None
    stream_time: int | None
    written_at: int
    inputs: Mapping[str, int] | None = None

    def encode(self) -> bytes:
        """Return the bytes that go into the store."""
        return encode_with_inputs(
            {
                **vars(self.identity),
                "input_offset": self.input_offset,
                "changelog_offset": self.changelog_offset,
                "stream_time": self.stream_time,
                "written_at": self.written_at,
            },
            self.inputs,
        )

    @classmethod
    def decode(cls, data: bytes) -> "Stamp":
        """Read what `encode` wrote.

        Raises:
            StoreVersionError: if a newer version of StreamRT wrote it.
            StoreCorruptedError: if it is no stamp.
        """
        fields = decode_versioned(data, _VERSION, "the stamp of a store", StoreCorruptedError)
        try:
            identity = StoreIdentity(**{name: fields.pop(name) for name in StoreIdentity.__dataclass_fields__})
            return cls(identity, **fields)
        except (KeyError, TypeError) as error:
            raise StoreCorruptedError(f"the stamp of a store lacks {error}: {data[:40]!r}") from None
