"""Whose data a store partition holds, and up to where.

Stamps are stored next to the data, so they outlive the program that wrote them. Their format is JSON with a version:
`{"v":1,"group":...,"topic":...,"partition":...,"store":...,"topic_id":...,"changelog_id":...,"partitions":...,
"input_offset":...,"changelog_offset":...,"stream_time":...,"written_at":...}`. A newer version is refused, since its
meaning is unknown; so are bytes that are no stamp at all.

State that is made from several topics has version 2: `topic` holds their names, joined by `--`, `topic_id` their ids, joined
by commas, `input_offset` is the sum of the offsets of all, and `"inputs":{...}` tells the offset of each topic.

State of which watermarks are made has version 3: `"observed":...` is the highest event time of its records.

Data that was written at least once has version 4: `"epoch":"..."` is the highest epoch of the changelog records that the data
is made of, in hexadecimal digits (see `changelog.py`), and `"inputs"` and `"observed"` are there in any case, null
where they are not known. So has data that is restored part-way only, where a position was among what is restored:
`"restored":"..."` is that position, and `"epoch"` may be null.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from streamrt.errors import StateError, StoreCorruptedError, StoreVersionError

__all__ = ["Stamp", "StoreIdentity", "decode_versioned", "encode_versioned", "encode_with_inputs"]

_VERSION = 4


def encode_versioned(version: int, fields: dict[str, Any]) -> bytes:
    """Return JSON that begins with its version."""
    return orjson.dumps({"v": version, **fields})


def encode_with_inputs(fields: dict[str, Any], inputs: Mapping[str, int] | None, observed: int | None) -> bytes:
    """Return what state is described by, in the lowest version that can tell it.

    Version 1 has one topic, version 2 the offsets of several, version 3 an observed time as well.
    """
    if inputs is not None:
        fields = {**fields, "inputs": dict(inputs)}
    if observed is not None:
        return encode_versioned(3, {**fields, "observed": observed})
    return encode_versioned(1 if inputs is None else 2, fields)


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
        observed: highest event time of the records that watermarks are made of, in milliseconds; None if there are none.
        epoch: highest epoch of the changelog records that the data is made of; None if none of them has one.
        restored: the last position (see `changelog.py`) among what is in the data that is restored part-way only; None if
            there is none, and where `input_offset` tells it.

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
    observed: int | None = None
    epoch: bytes | None = None
    restored: bytes | None = None

    def encode(self) -> bytes:
        """Return the bytes that go into the store."""
        fields = {
            **vars(self.identity),
            "input_offset": self.input_offset,
            "changelog_offset": self.changelog_offset,
            "stream_time": self.stream_time,
            "written_at": self.written_at,
        }
        if self.epoch is None and self.restored is None:
            return encode_with_inputs(fields, self.inputs, self.observed)
        fields["inputs"] = None if self.inputs is None else dict(self.inputs)
        fields["observed"] = self.observed
        fields["epoch"] = None if self.epoch is None else self.epoch.hex()
        if self.restored is not None:
            fields["restored"] = self.restored.decode()
        return encode_versioned(4, fields)

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
            epoch, restored = fields.pop("epoch", None), fields.pop("restored", None)
            return cls(
                identity,
                **fields,
                epoch=None if epoch is None else bytes.fromhex(epoch),
                restored=None if restored is None else restored.encode(),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreCorruptedError(f"the stamp of a store lacks {error}: {data[:40]!r}") from None
