"""Records as tasks take them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamrt.models import Headers, RawRecord


@dataclass(frozen=True)
class Chunk:
    """Consecutive records of one partition, column by column; all columns are equally long."""

    topic: str
    partition: int
    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    timestamp_types: list[int]
    headers: list[Headers | None] | None = None
    """None where no record of the chunk has headers."""

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
        start = next((index for index, own in enumerate(self.offsets) if own >= offset), len(self.offsets))
        # Slices, since what is left of a chunk is cut again and again where its records are slow.
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

    def select(self, indexes: Iterable[int]) -> "Chunk":
        """Return some records of the chunk."""
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
        """Return the records of this chunk and of others of the same partition, one after the other."""
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
