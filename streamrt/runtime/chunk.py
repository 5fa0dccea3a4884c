"""Chunks of records, the input format of tasks."""

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamrt.records import Headers, RawRecord


@dataclass(frozen=True)
class Chunk:
    """Consecutive records of one partition as columns of equal length."""

    topic: str
    partition: int
    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    timestamp_types: list[int]
    headers: list[Headers | None] | None = None
    """None if no record of the chunk has headers."""

    def raw(self, index: int) -> RawRecord:
        """Return one record of the chunk."""
        return RawRecord(
            self.topic,
            self.partition,
            self.offsets[index],
            self.keys[index],
            self.values[index],
            self.timestamps[index],
            self.timestamp_types[index],
            None if self.headers is None else self.headers[index],
        )

    def from_offset(self, offset: int) -> "Chunk":
        """Return the part of the chunk that begins at `offset`."""
        start = bisect.bisect_left(self.offsets, offset)
        # Slices are fast: with slow records, the rest of a chunk is cut many times.
        return Chunk(
            self.topic,
            self.partition,
            self.offsets[start:],
            self.keys[start:],
            self.values[start:],
            self.timestamps[start:],
            self.timestamp_types[start:],
            None if self.headers is None else self.headers[start:],
        )

    def before_offset(self, offset: int) -> "Chunk":
        """Return the part of the chunk that ends before `offset`."""
        return self.select(index for index, own in enumerate(self.offsets) if own < offset)

    def select(self, indexes: Iterable[int]) -> "Chunk":
        """Return the records at some indexes of the chunk."""
        chosen = list(indexes)
        return Chunk(
            self.topic,
            self.partition,
            [self.offsets[index] for index in chosen],
            [self.keys[index] for index in chosen],
            [self.values[index] for index in chosen],
            [self.timestamps[index] for index in chosen],
            [self.timestamp_types[index] for index in chosen],
            None if self.headers is None else [self.headers[index] for index in chosen],
        )

    def join(self, others: Sequence["Chunk"]) -> "Chunk":
        """Return the records of this chunk, followed by those of other chunks of the same partition."""
        chunks = [self, *others]
        with_headers = any(chunk.headers is not None for chunk in chunks)
        headers = [chunk.headers or [None] * len(chunk.offsets) for chunk in chunks] if with_headers else None
        return Chunk(
            self.topic,
            self.partition,
            [offset for chunk in chunks for offset in chunk.offsets],
            [key for chunk in chunks for key in chunk.keys],
            [value for chunk in chunks for value in chunk.values],
            [timestamp for chunk in chunks for timestamp in chunk.timestamps],
            [kind for chunk in chunks for kind in chunk.timestamp_types],
            None if headers is None else [each for column in headers for each in column],
        )
