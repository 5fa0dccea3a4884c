"""`TableScan`: reads a table from where it begins to where it ends now."""

import bisect
import contextlib
import math
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamrt.arguments import checked_int
from streamrt.common.collection import collection_paused
from streamrt.common.files import replacing
from streamrt.errors import (
    ConfigurationError,
    OffsetOutOfRangeError,
    ResultTooLargeError,
)
from streamrt.extras import install_command
from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.completion_token import Offsets
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.tables.access.links import RecordFeed, TableLinks
from streamrt.tables.access.positions import Positions, TopicPositions
from streamrt.tables.access.topic_watch import TopicWatch
from streamrt.tables.rows.decoding import RowReader, slice_of
from streamrt.tables.rows.rows import RecordBatch, ScanRecord

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["MAX_BYTES", "TableScan"]

MAX_BYTES = 1024**3
"""Size of a result in memory that is not exceeded unless somebody asks for it: 1 GiB."""

_RECORDS = 5_000
"""Records of a poll: more of them do not fit into the caches of a processor, and are slower."""
_POLL_S = 0.2
_LOOK_S = 1.0
"""Seconds between two looks whether the topic was created again."""
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_FETCHING = {
    # An end is reported when the request before it is answered; brokers hold those for so long.
    "fetch.wait.max.ms": 5,
    "queued.min.messages": 100_000,
    "max.partition.fetch.bytes": 8 * 1024 * 1024,
}
_FEW_RECORDS = 1_000
_FETCHING_FEW = {"fetch.wait.max.ms": 5, "max.partition.fetch.bytes": 256 * 1024}


class TableScan:
    """The rows of a table between two positions, both fixed when the scan is made; `Table.scan` returns it.

    Nothing is read until a method asks for rows, and each of them reads again. A broken loop reads no further. Rows of
    one partition are in order; `rows`, `records` and `batches` return those of several partitions as they arrive, and
    `to_arrow` and the frames partition after partition.

    Example:
        ```python
        scan = catalog.table("shop.orders").scan(["id", "amount"], start=datetime(2026, 11, 1))
        print(scan.count(), scan.to_pandas())
        following = scan.end
        ```
    """

    def __init__(
        self,
        links: TableLinks,
        positions: TopicPositions,
        bounds: tuple[Positions, Positions],
        readers: Callable[[], RowReader],
        *,
        limit: int | None,
        timeout: float,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if limit is not None:
            checked_int("limit", limit, 0, "a number of rows")
        self._links = links
        self._positions = positions
        self._start, self._end = bounds
        self._readers = readers
        self._reader = readers()
        self._limit = limit
        self._timeout = timeout
        self._options = options or {}

    @property
    def schema(self) -> Schema:
        """The columns that are read."""
        return self._reader.schema

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of batches, with those that `metadata` and `changes` add."""
        return self._reader.arrow

    @property
    def start(self) -> Offsets:
        """Where the scan begins."""
        return self._start.offsets()

    @property
    def end(self) -> Offsets:
        """Where the scan ends: with it, another scan or a subscription begins where this one ends."""
        return self._end.offsets()

    @property
    def bounds(self) -> dict[int, tuple[int, int]]:
        """First offset and end offset by number of partition; equal ones if there is nothing to read."""
        return {
            number: (offset, max(offset, self._end.at[number])) for number, offset in sorted(self._start.at.items())
        }

    @property
    def skipped(self) -> int:
        """How many records the last run has skipped because they were not rows."""
        return self._reader.skipped

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dicts.

        Raises:
            SerializationError: if a record is not a row; it names topic, partition, offset and column.
            OffsetOutOfRangeError: if records were deleted since the scan was made.
            KafkaRequestError: if records cannot be read, or no more of them arrive.
        """
        for record in self.records():
            yield record.row

    def records(self) -> Iterator[ScanRecord]:
        """Yield the rows with offset, time, key and partition; raises what `rows` does."""
        reader = self._reader = self._readers()
        left = self._limit
        with contextlib.closing(self._read_batches()) as batches:
            for partition, records in batches:
                for index in range(len(records.offsets)):
                    record = reader.record(partition, records, index)
                    if record is not None:
                        yield record
                        if left is not None:
                            left -= 1
                            if not left:
                                return

    def batches(self) -> Generator[RecordBatch, None, None]:
        """Yield the rows as batches of Arrow, of one partition each; raises what `rows` does."""
        reader = self._reader = self._readers()
        left = self._limit
        with contextlib.closing(self._read_batches()) as batches:
            for partition, records in batches:
                index = 0
                while index < len(records.offsets):
                    part = records if left is None else slice_of(records, index, index + left)
                    index += len(part.offsets)
                    with collection_paused():
                        rows = reader.batch(partition, part)
                    if rows.num_rows:
                        yield RecordBatch(rows, partition, part.offsets[0], part.offsets[-1])
                    if left is not None:
                        left -= rows.num_rows
                        if not left:
                            return

    def count(self) -> int:
        """Return the number of rows. Records are read, but not decoded: those that are not rows also count."""
        with contextlib.closing(self._read_batches()) as batches:
            counted = 0
            for _, records in batches:
                counted += len(records.offsets)
                if self._limit is not None and counted >= self._limit:
                    return self._limit
        return counted

    def to_arrow(self, max_bytes: int = MAX_BYTES) -> pa.Table:
        """Return the rows as a table of Arrow, partition after partition.

        Args:
            max_bytes: size in memory that the result may have.

        Raises:
            ResultTooLargeError: if it would be larger.
            SerializationError: if a record is not a row.
            KafkaRequestError: if records cannot be read, or no more of them arrive.
        """
        found: list[RecordBatch] = []
        size = 0
        # Closed at once: the traceback of an error would keep the connections.
        with contextlib.closing(self.batches()) as batches:
            for each in batches:
                size += each.batch.nbytes
                if size > max_bytes:
                    raise ResultTooLargeError(
                        f"the rows take more than {max_bytes:,} bytes in memory: read them by batches() or to_parquet(), "
                        "choose columns or a range, or allow more by max_bytes="
                    )
                found.append(each)
        found.sort(key=lambda each: (each.partition, each.first_offset))
        return pa.Table.from_batches([each.batch for each in found], self.arrow_schema)

    def to_pandas(self, max_bytes: int = MAX_BYTES) -> "pd.DataFrame":
        """Return the rows as a DataFrame of pandas, partition after partition.

        Columns of integers and booleans that may be null have the types `Int64` (or the like) and `boolean`, whether they
        have nulls or not.

        Args:
            max_bytes: size in memory, as Arrow, that the result may have.

        Raises:
            ResultTooLargeError: if it would be larger.
            SerializationError: if a record is not a row.
        """
        return frame_of(self.to_arrow(max_bytes))

    def to_polars(self, max_bytes: int = MAX_BYTES) -> "pl.DataFrame":
        """Return the rows as a DataFrame of polars, partition after partition. Needs the extra `polars`.

        Args:
            max_bytes: size in memory, as Arrow, that the result may have.

        Raises:
            ConfigurationError: if polars is not installed.
            ResultTooLargeError: if it would be larger.
            SerializationError: if a record is not a row.
        """
        try:
            import polars
        except ModuleNotFoundError:
            raise ConfigurationError(f"to_polars() needs polars: {install_command('polars')}") from None
        return polars.DataFrame(self.to_arrow(max_bytes))

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Write the rows into a Parquet file, and return their number. Memory does not grow with them.

        A file of this name is replaced when all rows are written and on disk; after an error, or if the process dies, it is
        unchanged. A process that is killed leaves `.<name>.<number>.tmp` next to it.

        Args:
            path: the file; not a directory or a device.

        Raises:
            SerializationError: if a record is not a row.
            OSError: if the file cannot be written.
        """
        from pyarrow import parquet

        count = 0
        with (
            replacing(path) as unfinished,
            parquet.ParquetWriter(unfinished, self.arrow_schema) as writer,
            contextlib.closing(self._group_tables()) as groups,
        ):
            for group in groups:
                writer.write_table(group)
                count += group.num_rows
        return count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.rows()

    def __repr__(self) -> str:
        ranges = ", ".join(f"{number}: {low} to {high}" for number, (low, high) in self.bounds.items())
        return f"<TableScan of {self._start.topic!r}, offsets {ranges}>"

    def _group_tables(self) -> Generator[pa.Table, None, None]:
        """Yield tables that are large enough for a row group, and small enough for memory."""
        held: list[pa.RecordBatch] = []
        size = 0
        with contextlib.closing(self.batches()) as batches:
            for each in batches:
                held.append(each.batch)
                size += each.batch.nbytes
                if size >= _ROW_GROUP_BYTES:
                    yield pa.Table.from_batches(held, self.arrow_schema)
                    held, size = [], 0
        yield pa.Table.from_batches(held, self.arrow_schema)

    def _read_batches(self) -> Generator[tuple[int, InputBatch], None, None]:
        """Yield the records between the bounds."""
        if self._limit == 0:
            return
        ends = {
            TopicPartition(self._start.topic, number): end
            for number, (start, end) in self.bounds.items()
            if start < end
        }
        if not ends:
            return
        # Of the last records it is known that they are of the topic that the bounds are of; of others, once in a while.
        watch = TopicWatch(self._positions, self._start.topic_id)
        looked_at = -math.inf
        position = {each: self._start.at[each.partition] for each in ends}
        left = math.inf if self._limit is None else self._limit
        few = left <= _FEW_RECORDS
        most = min(_RECORDS, self._limit or _RECORDS)
        with contextlib.closing(self._links.feed({**(_FETCHING_FEW if few else _FETCHING), **self._options})) as feed:
            feed.add(position)
            feed.resume(ends)
            moved_at = time.monotonic()
            while ends:
                if time.monotonic() - looked_at > _LOOK_S:
                    watch.check_topic(patient=True)
                    looked_at = time.monotonic()
                try:
                    with collection_paused():
                        found = feed.poll(_POLL_S, most)
                except (KafkaRequestError, OffsetOutOfRangeError):
                    watch.check_topic()
                    raise
                inside = [each for each in (_find_within(*batch, ends) for batch in found) if each[1].offsets]
                for partition, records in found:
                    position[partition] = records.offsets[-1] + 1
                has_moved = _advance_to_ends(feed, position, ends) or bool(found)
                done = [each for each, end in ends.items() if position[each] >= end]
                feed.remove(done)
                for each in done:
                    del ends[each]
                left -= sum(len(records.offsets) for _, records in inside)
                if not ends or left <= 0:
                    watch.require_same_topic()
                yield from inside
                # After the rows, for which a caller may take any time.
                if has_moved:
                    moved_at = time.monotonic()
                if time.monotonic() - moved_at > self._timeout:
                    raise self._make_stuck_error(position, ends)

    def _make_stuck_error(
        self, position: dict[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> KafkaRequestError:
        partition, end = next(iter(ends.items()))
        at = position[partition]
        bounds = self._positions.read_bounds([partition.partition])
        if bounds.readable[partition.partition] <= at < bounds.high[partition.partition]:
            reason = (
                "a transaction of a producer is open there; it ends at the latest after its transaction.timeout.ms, so try "
                "again then"
            )
        else:
            reason = "its broker sends no records; look at the logs of the brokers"
        return KafkaRequestError(
            f"the scan of {partition} came to offset {at} of {end}, and no further for {self._timeout:g} s: {reason}",
            retriable=True,
        )


def frame_of(table: pa.Table) -> "pd.DataFrame":
    """Return a table of Arrow as a DataFrame: nullable integers and booleans have types of pandas that know nulls.

    Args:
        table: the table.
    """
    import pandas as pd

    types = {pa.bool_(): pd.BooleanDtype()}
    for bits in (8, 16, 32, 64):
        types[getattr(pa, f"int{bits}")()] = getattr(pd, f"Int{bits}Dtype")()
    frame: pd.DataFrame = table.to_pandas(types_mapper=types.get)
    for each in table.schema:
        if not each.nullable and each.type in types:
            frame[each.name] = frame[each.name].astype(each.type.to_pandas_dtype())
    return frame


def _find_within(
    partition: TopicPartition, records: InputBatch, ends: dict[TopicPartition, int]
) -> tuple[int, InputBatch]:
    """Return the number of a partition, and those of its records that are before its end."""
    end = ends.get(partition, 0)
    if records.offsets[-1] >= end:
        records = slice_of(records, 0, bisect.bisect_left(records.offsets, end))
    return partition.partition, records


def _advance_to_ends(feed: RecordFeed, position: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> bool:
    """Move to the ends of partitions that are read to them, and return whether a position moved."""
    moved = False
    for each, end in feed.ends().items():
        if each in ends and end > position[each]:
            position[each] = end
            moved = True
    return moved
