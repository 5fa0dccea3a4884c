"""Whose data a store partition holds, and up to where.

Stamps are stored next to the data, so they outlive the program that wrote them. Their format is JSON with a version:
`{"v":1,"group":...,"topic":...,"partition":...,"store":...,"topic_id":...,"changelog_id":...,"partitions":...,
"input_offset":...,"changelog_offset":...,"stream_time":...,"written_at":...}`. A newer version is refused, since its
meaning is unknown; so are bytes that are no stamp at all.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from streamrt.errors import StateError, StoreCorruptedError, StoreVersionError

__all__ = ["Stamp", "StoreIdentity", "decode_versioned", "encode_versioned"]

_VERSION = 1


def encode_versioned(version: int, fields: dict[str, Any]) -> bytes:
    """Return JSON that begins with its version."""
    return orjson.dumps({"v": version, **fields})


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
        topic: source topic, or repartition topic.
        partition: number of the partition in that topic.
        store: name of the store.
        topic_id: Kafka's id of the source topic; None in the test driver.
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
        input_offset: all input records below it are in the data; None while the data is restored part-way only.
        changelog_offset: all changelog records below it are in the data; None without changelog.
        stream_time: highest event time seen, in milliseconds; None before the first record.
        written_at: wall clock, in milliseconds, at which the last commit was made, or the last replay began.

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

    def encode(self) -> bytes:
        """Return the bytes that go into the store."""
        return encode_versioned(
            _VERSION,
            {
                **vars(self.identity),
                "input_offset": self.input_offset,
                "changelog_offset": self.changelog_offset,
                "stream_time": self.stream_time,
                "written_at": self.written_at,
            },
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
