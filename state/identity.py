"""The identity of a store partition, and the progress of its data.

Stamps are stored next to the data, so they outlive the program that wrote them. Their format is JSON with a version:
`{"v":1,"group":...,"topic":...,"partition":...,"store":...,"topic_id":...,"changelog_id":...,"partitions":...,
"input_offset":...,"changelog_offset":...,"stream_time":...,"written_at":...}`. A newer version is refused, because its
meaning is unknown, and so are bytes that are not a stamp.

Version 2 is for state with several input topics: `topic` holds their names, joined by `--`, `topic_id` their ids,
joined by commas, `input_offset` is the sum of their offsets, and `"inputs":{...}` holds the offset of each topic.

Version 3 is for state that advances watermarks: `"observed":...` is the highest event time of its records.

Version 4 is for data written with at-least-once: `"epoch":"..."` is the highest epoch of the changelog records in the
data, in hexadecimal digits (see `changelog.py`). `"inputs"` and `"observed"` are always present, null if unknown.
Version 4 also applies to partly restored data if the restored records include a position: `"restored":"..."` is that
position, and `"epoch"` may be null.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from streamrt.common.untrusted import LOWEST, malformed_as, read_field, read_field_or_none
from streamrt.errors import StateError, StoreCorruptedError, StoreVersionError

__all__ = ["Stamp", "StoreIdentity", "decode_versioned", "encode_versioned", "encode_with_inputs"]

_VERSION = 4


def encode_versioned(version: int, fields: dict[str, Any]) -> bytes:
    """Encode fields as JSON that begins with its version."""
    return orjson.dumps({"v": version, **fields})


def encode_with_inputs(fields: dict[str, Any], inputs: Mapping[str, int] | None, observed: int | None) -> bytes:
    """Encode the description of state in the lowest version that can express it.

    Version 1 has one topic, version 2 the offsets of several topics, version 3 an observed time as well.
    """
    if inputs is not None:
        fields = {**fields, "inputs": dict(inputs)}
    if observed is not None:
        return encode_versioned(3, {**fields, "observed": observed})
    return encode_versioned(1 if inputs is None else 2, fields)


def decode_versioned(data: bytes, newest: int, what: str, error: type[StateError]) -> dict[str, Any]:
    """Decode the fields that `encode_versioned` encoded.

    Args:
        data: the bytes.
        newest: the newest supported version.
        what: description of the bytes, for errors.
        error: class of the error for unreadable bytes.

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
        raise error(f"{what} is unreadable: {data[:40]!r}")
    if version > newest:
        raise StoreVersionError(
            f"{what} has format version {version}, but this StreamRT supports versions up to {newest}: a newer version "
            "wrote the state; upgrade StreamRT"
        )
    return dict(fields)


@dataclass(frozen=True)
class StoreIdentity:
    """The application, task and topics that the data of a store partition belongs to.

    Attributes:
        group: consumer group of the application.
        topic: source topic or repartition topic; with several, their sorted names, joined by `--`.
        partition: number of the partition in that topic.
        store: name of the store.
        topic_id: Kafka's id of the source topic; with several, their ids, joined by commas; None in the test driver.
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
    """The identity and the progress of a store partition, written atomically with the data.

    Attributes:
        identity: owner of the data.
        input_offset: the data contains all input records below it; None while the data is partly restored. With several
            source topics: the sum of their offsets.
        changelog_offset: the data contains all changelog records below it; None without changelog.
        stream_time: highest event time seen, in milliseconds; None before the first record.
        written_at: wall clock, in milliseconds, of the last commit or the start of the last replay.
        inputs: offset of each source topic, if there are several and `input_offset` is not None.
        observed: highest event time of the records that advance watermarks, in milliseconds; None if there are none.
        epoch: highest epoch of the changelog records in the data; None if none of them has an epoch.
        restored: the last position (see `changelog.py`) in partly restored data; None if there is none, or if
            `input_offset` is set.

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
        """Return the bytes for the store."""
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
            StoreCorruptedError: if it is not a stamp.
        """
        fields = decode_versioned(data, _VERSION, "the stamp of a store", StoreCorruptedError)
        with malformed_as(
            lambda wrong: StoreCorruptedError(f"the stamp of a store is damaged: it {wrong}: {data[:40]!r}")
        ):
            inputs = read_field_or_none(fields, "inputs", dict)
            epoch, restored = read_field_or_none(fields, "epoch", str), read_field_or_none(fields, "restored", str)
            return cls(
                StoreIdentity(
                    read_field(fields, "group", str),
                    read_field(fields, "topic", str),
                    read_field(fields, "partition", int),
                    read_field(fields, "store", str),
                    read_field_or_none(fields, "topic_id", str),
                    read_field_or_none(fields, "changelog_id", str),
                    read_field(fields, "partitions", int),
                ),
                read_field_or_none(fields, "input_offset", int, LOWEST),
                read_field_or_none(fields, "changelog_offset", int, LOWEST),
                read_field_or_none(fields, "stream_time", int, LOWEST),
                read_field(fields, "written_at", int, LOWEST),
                None if inputs is None else {topic: read_field(inputs, topic, int) for topic in inputs},
                read_field_or_none(fields, "observed", int, LOWEST),
                None if epoch is None else bytes.fromhex(epoch),
                None if restored is None else restored.encode(),
            )
