"""The last record of each key, of all records between two positions."""

import itertools
import struct
from collections.abc import Collection, Generator, Iterator

from streamrt.kafka.reading.input_reader import InputBatch

__all__ = ["keep_current"]

_BATCH_RECORDS = 5_000
_POSITION = struct.Struct(">qq")
_CREATE_TIME = 1


def keep_current(
    turns: Iterator[tuple[int, InputBatch] | None],
    keys: Collection[bytes] | None = None,
) -> Generator[tuple[int, InputBatch], None, None]:
    """Yield the last record of each key in the order of offsets, without keys that were deleted.

    Records without a key are no one's successors, and are all yielded.

    Args:
        turns: records of partitions, and None after those of all records of some partitions were yielded.
        keys: the only keys whose records are wanted; None means all.

    Example:
        >>> from streamrt.kafka.reading.input_reader import InputBatch
        >>> records = InputBatch([0, 1, 2, 3], [b"a", b"b", b"a", b"b"], [b"1", b"2", b"3", None], [7] * 4, [1] * 4, None)
        >>> [(batch.offsets, batch.values) for _, batch in keep_current(iter([(0, records), None]))]
        [([2], [b'3'])]
    """
    # Of each key one string of bytes, position first: for 10 million keys, tuples would take another gigabyte.
    current: dict[int, dict[bytes | int, bytes]] = {}
    for part in turns:
        if part is not None:
            _replace_records(current.setdefault(part[0], {}), part[1], keys)
            continue
        for partition in sorted(current):
            for records in _make_batches(current.pop(partition)):
                yield partition, records


def _replace_records(current: dict[bytes | int, bytes], records: InputBatch, keys: Collection[bytes] | None) -> None:
    pack = _POSITION.pack
    for offset, key, value, timestamp in zip(
        records.offsets, records.keys, records.values, records.timestamps, strict=True
    ):
        if keys is not None and key not in keys:
            continue
        known: bytes | int = offset if key is None else key
        # The newest record of a key stands last.
        current.pop(known, None)
        if value is not None or key is None:
            current[known] = pack(offset, timestamp) + (value or b"")


def _make_batches(current: dict[bytes | int, bytes]) -> Iterator[InputBatch]:
    entries = iter(current.items())
    size = _POSITION.size
    while part := list(itertools.islice(entries, _BATCH_RECORDS)):
        positions = [_POSITION.unpack_from(packed) for _, packed in part]
        yield InputBatch(
            [offset for offset, _ in positions],
            [key if isinstance(key, bytes) else None for key, _ in part],
            [packed[size:] for _, packed in part],
            [timestamp for _, timestamp in positions],
            [_CREATE_TIME] * len(part),
            None,
        )
