"""`TableScan`: reads a table from where it begins to where it ends now."""

import contextlib
import os
from collections.abc import Callable, Collection, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamrt.arguments import checked_int
from streamrt.common.collection import collection_paused
from streamrt.common.files import replacing
from streamrt.errors import ConfigurationError, ResultTooLargeError
from streamrt.extras import install_command
from streamrt.kafka.completion_token import Offsets
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.schema import Schema
from streamrt.tables.reading.current_records import keep_current
from streamrt.tables.reading.ranges import RangeReader
from streamrt.tables.rows.decoding import RowReader, slice_of
from streamrt.tables.rows.rows import RecordBatch, ScanRecord

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["MAX_BYTES", "TableScan"]

MAX_BYTES = 1024**3
"""Size of a result in memory that is not exceeded unless somebody asks for it: 1 GiB."""

_ROW_GROUP_BYTES = 64 * 1024 * 1024


class TableScan:
    """The rows of a table between two positions, both fixed when the scan is made; `Table.scan` returns it.

    Nothing is read until a method asks for rows, and each of them reads again. A broken loop reads no further. Rows of
    one partition are in order; `rows`, `records` and `batches` return those of several partitions as they arrive, and
    `to_arrow` and the frames partition after partition.

    Of a table with a primary key, unless changes were asked for, a scan returns the current rows: the last one of each key
    between the two positions, in the order in which they were written, and none for keys that were deleted. It then reads
    all records of some partitions before their first row, and keeps the bytes of one row for each key of them.

    Example:
        ```python
        scan = catalog.table("shop.orders").scan(["id", "amount"], start=datetime(2026, 11, 1))
        print(scan.count(), scan.to_pandas())
        following = scan.end
        ```
    """

    def __init__(
        self,
        ranges: RangeReader,
        readers: Callable[[], RowReader],
        *,
        limit: int | None,
        current: bool = False,
        keys: Collection[bytes] | None = None,
    ) -> None:
        if limit is not None:
            checked_int("limit", limit, 0, "a number of rows")
        self._ranges = ranges
        self._readers = readers
        self._reader = readers()
        self._limit = limit
        self._is_current = current
        self._keys = keys

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
        return self._ranges.start.offsets()

    @property
    def end(self) -> Offsets:
        """Where the scan ends: with it, another scan or a subscription begins where this one ends."""
        return self._ranges.end.offsets()

    @property
    def bounds(self) -> dict[int, tuple[int, int]]:
        """First offset and end offset by number of partition; equal ones if there is nothing to read."""
        return self._ranges.bounds

    @property
    def is_current(self) -> bool:
        """Whether it returns the current rows of a table with a primary key."""
        return self._is_current

    @property
    def readers(self) -> Callable[[], RowReader]:
        """Returns a new decoder of its records; tasks of Spark get it."""
        return self._readers

    def require_same_topic(self) -> None:
        """Refuse a topic that was created again since the scan was made; readers other than this scan call it.

        Raises:
            StaleTokenError: if it was.
            TopicNotFoundError: if it does not exist.
        """
        self._ranges.require_same_topic()

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
        return f"<TableScan of {self._ranges.start.topic!r}, offsets {ranges}>"

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
        """Return the records between the bounds; of a table with a primary key, the current ones."""
        if not self._is_current or self._limit == 0:
            return self._ranges.read(self._limit)
        return keep_current(self._ranges.read_in_turns(), self._keys)


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
